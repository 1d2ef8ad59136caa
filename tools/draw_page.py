"""Draw the picture of the README: the page with a query, on free photos.

python tools/fetch_pictures.py pictures
python tools/draw_page.py pictures docs/figures/page.jpg

Needs Chromium and its driver, as the tests of the page do. docs/figures/CREDITS.md has the photos' authors.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

QUERY = "fish under water"
WIDTH, HEIGHT, PORT = 1180, 700, 8397
PHOTOS = 15


def wait_until_ready(address: str) -> None:
    for _ in range(300):
        try:
            with urlopen(f"{address}/api/search?q={quote(QUERY)}", timeout=5) as answer:
                if len(json.load(answer)["photos"]) >= PHOTOS:
                    return
        except OSError:  # it is starting
            pass
        time.sleep(0.5)
    raise SystemExit("The server did not start.")


def take_picture(address: str) -> Image.Image:
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        f"--window-size={WIDTH},{HEIGHT}",
        "--hide-scrollbars",
        # With a mouse, as on a desktop: without one, each photo has a box to select it.
        "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
    ):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium")
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        browser.get(f"{address}/?q={quote(QUERY)}")
        loaded = (
            "return [...document.images].every(i => i.complete && i.naturalWidth) && document.images.length"
        )
        for _ in range(100):
            if browser.execute_script(loaded):
                break
            time.sleep(0.2)
        time.sleep(1)
        return Image.open(BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    finally:
        browser.quit()


def main(source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        photos = shutil.copytree(source, Path(home) / "Pictures")
        fishermix, place = [sys.executable, "-m", "fishermix_photos"], ["--library", f"{home}/library"]
        subprocess.run([*fishermix, "library", "add", str(photos), *place], check=True)
        server = subprocess.Popen([*fishermix, "serve", str(photos), "--port", str(PORT), *place])
        try:
            address = f"http://127.0.0.1:{PORT}"
            wait_until_ready(address)
            picture = take_picture(address)
        finally:
            server.terminate()
            server.wait()
    picture.save(target, quality=85, optimize=True)
    print(f"{target}: {target.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
