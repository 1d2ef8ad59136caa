"""Draws the picture of the README: the page with a query, on pictures of scikit-image and scikit-learn.

python tools/draw_page.py docs/figures/page.png

Needs Chromium and its driver, as the tests of the page do. The licenses of the pictures permit it: see
`skimage/data/README.txt` of scikit-image and `datasets/images/README.txt` of scikit-learn (CC BY).
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

from fishermix_photos.cli.demo import copy_packaged_photos
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

QUERY = "a cat"
WIDTH, HEIGHT, PORT = 1180, 560, 8397
PHOTOS = 15
COLORS = 64  # of a palette: a third of the size, and hardly visible


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


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        photos = copy_packaged_photos(Path(home) / "Pictures")
        command = [sys.executable, "-m", "fishermix_photos", "serve", str(photos), "--port", str(PORT)]
        server = subprocess.Popen([*command, "--library", f"{home}/library"])
        try:
            address = f"http://127.0.0.1:{PORT}"
            wait_until_ready(address)
            picture = take_picture(address)
        finally:
            server.terminate()
            server.wait()
    picture.quantize(COLORS).save(target, optimize=True)
    print(f"{target}: {target.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
