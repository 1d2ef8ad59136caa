"""Nothing is executed from a folder of photos, and nothing leaves the machine: the real commands."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fishermix_photos.model.network import TELEMETRY_FOLDER
from PIL import Image

COMMAND = str(Path(sys.executable).with_name("fishermix"))
# Modules that a process imports while it starts, decodes a picture or runs a network.
SHADOWED = (
    "json",
    "struct",
    "subprocess",
    "PIL",
    "numpy",
    "fishermix",
    "threading",
    "sitecustomize",
    "usercustomize",
)


def run(*arguments, cwd, **variables):
    variables = {key: str(value) for key, value in variables.items()}
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "GITHUB_ACTIONS", "PYTHONPATH")}
    result = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env=environment | variables,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.new("RGB", (64, 64), "red").save(folder / "any.webp")  # of unknown cost: decoded by a worker
    Image.new("RGB", (64, 64), "blue").save(folder / "plain.jpg")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("python_path", ["", ".:", ":lib"])
def test_a_folder_of_photos_runs_no_code(photos, tmp_path, python_path):
    for name in SHADOWED:
        (photos / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\nraise SystemExit"
        )
    home = {"HOME": tmp_path, "FISHERMIX_HOME": tmp_path / "home"}
    if (
        python_path
    ):  # the user's own setting, which reaches the command itself; the worker must not inherit it
        for name in SHADOWED:
            (photos / f"{name}.py").unlink()
        marker = f"open({str(tmp_path / 'ran')!r}, 'a').write(' '.join(__import__('sys').orig_argv))"
        (photos / "sitecustomize.py").write_text(
            f"import sys\nif 'serve()' in ' '.join(sys.orig_argv): {marker}"
        )
        home["PYTHONPATH"] = python_path
    found = run(COMMAND, "search", "coffee", ".", cwd=photos, **home)
    assert "any.webp" in found
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


def test_a_module_run_in_a_folder_of_photos_starts_its_worker_elsewhere(photos, tmp_path):
    # `python -m` puts the current folder first by itself: here, the module in it gives way to Python's own.
    code = f"""
import sys
if 'serve()' in ' '.join(sys.orig_argv):
    open({str(tmp_path / "ran")!r}, 'w')
here = sys.path.pop(0)
del sys.modules['decimal']
import decimal
sys.path.insert(0, here)
"""
    (photos / "decimal.py").write_text(code)
    program = "from PIL import Image; from fishermix_photos.photos.worker import ask_worker as d; "
    program += "print(d('decode', open('any.webp', 'rb').read(), 10**6, side=32).size)"
    assert "(" in run(sys.executable, "-c", program, cwd=photos)
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_settings_of_numba_in_a_folder_of_photos_are_not_read(photos, tmp_path):
    (photos / ".numba_config.yaml").write_text(
        f"cache_dir: {tmp_path / 'elsewhere'}\ncache_locator_classes: evil.Locator"
    )
    home = {"HOME": tmp_path, "FISHERMIX_HOME": tmp_path / "home"}
    run(COMMAND, "caption", "plain.jpg", cwd=photos, **home)  # runs compiled code
    assert not (tmp_path / "elsewhere").exists()


strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
OPENED = re.compile(r'^\d+ +(?:openat\(AT_FDCWD, |open\(|mkdir\(|creat\(|rename\()"([^"]*)"(?:, ([A-Z_|]+))?')


def read_trace(file: Path) -> tuple[list[str], set[str], set[str]]:
    """The connections that are not to this machine, the files that were read, and the files and folders that
    were made or written.
    """
    connections, read, written = [], set(), set()
    for line in file.read_text(errors="replace").splitlines():
        if re.search(r"\b(connect|sendto|sendmsg)\(", line) and "AF_INET" in line:
            if not re.search(r'"127\.0\.0\.1"|"::1"', line):
                connections.append(line)
        elif (match := OPENED.match(line)) and not re.search("ENOENT|EEXIST", line):
            (read if "O_RDONLY" in line else written).add(match[1])
    return connections, read, written


@pytest.mark.slow
@strace
@pytest.mark.parametrize("command", ["library add", "search", "caption", "demo", "serve"])
def test_nothing_leaves_the_machine(photos, tmp_path, command):
    left_behind = tmp_path / ".cache" / TELEMETRY_FOLDER / "deviceid"
    left_behind.parent.mkdir(parents=True)
    left_behind.write_text("of an older version")
    home = {"HOME": tmp_path, "FISHERMIX_HOME": tmp_path / "home", "TMPDIR": tmp_path / "tmp"}
    home = {key: str(value) for key, value in home.items()}
    (tmp_path / "tmp").mkdir()
    arguments = {
        "library add": ["library", "add", str(photos)],
        "search": ["search", "a red square", str(photos)],
        "caption": ["caption", str(photos / "plain.jpg")],
        "demo": ["demo", "--out", str(tmp_path / "demo")],
        "serve": ["serve", str(photos), "--port", str(free_port())],
    }[command]
    trace = tmp_path / "trace"
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "GITHUB_ACTIONS", "XDG_CACHE_HOME")}
    process = subprocess.Popen(
        [
            "strace",
            "-f",
            "-qq",
            "-s",
            "300",
            "-e",
            "trace=network,open,openat,creat,mkdir,rename",
            "-o",
            trace,
        ]
        + [COMMAND, *arguments],
        cwd=tmp_path / "tmp",
        env=environment | home | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if command == "serve":
        ask_until_ready(int(arguments[-1]), process)
        os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=120)[1]
    assert command == "serve" or process.returncode == 0, errors
    connections, read, written = read_trace(trace)
    allowed = (*(str(tmp_path / name) for name in ("home", "tmp", "demo")), "/dev/", "/proc/")
    assert not connections
    assert COMMAND in read, "the trace is not read"
    assert written or command == "caption"  # which keeps nothing
    elsewhere = {name for name in written if name.startswith("/") and not name.startswith(allowed)}
    assert not {name for name in elsewhere if "__pycache__" not in name}  # compiled code of the package
    assert not left_behind.exists()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask_until_ready(port: int, process: subprocess.Popen) -> None:
    import httpx

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            answer = httpx.get(
                f"http://127.0.0.1:{port}/api/search", params={"q": "a red square"}, trust_env=False
            )
            if answer.status_code == 200 and answer.json().get("photos"):
                return
        except httpx.TransportError:
            pass
        time.sleep(0.3)
    pytest.fail("the server did not answer a search")
