"""The page in a real browser: type, drop, click, keys, a phone's width, dark mode, hostile names and
captions.
"""

import base64
import shutil

import pytest
from tiny_model import HOSTILE, paint

pytest.importorskip("selenium")
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("Debian's chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    yield browser
    browser.quit()


@pytest.fixture
def page(browser, address):
    resize(browser, 1200, 900)
    browser.get(f"http://{address[0]}:{address[1]}/")
    wait(browser, lambda: "photos in photos" in text(browser, "#folder"))
    yield browser
    assert browser.execute_script("return window.alerted") is None
    problems = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    refused = ("400 (Bad Request)", "404 (Not Found)")  # queries that cannot be answered
    assert [problem for problem in problems if not any(status in problem for status in refused)] == []


def resize(browser, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait(browser, condition):
    return WebDriverWait(browser, 20, 0.05).until(lambda _: condition())


def text(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector).text


def cards(browser):
    return [card.get_attribute("title") for card in browser.find_elements(By.CSS_SELECTOR, ".photo")]


def search(browser, query):
    box = browser.find_element(By.ID, "query")
    box.clear()
    box.send_keys(query, Keys.ENTER)
    wait(browser, lambda: "stand" in text(browser, "#status") or "problem" in class_of(browser, "#status"))


def class_of(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector).get_attribute("class")


def loaded(browser, selector):
    script = "const i = document.querySelector(arguments[0]); return i && i.complete && i.naturalWidth"
    return wait(browser, lambda: browser.execute_script(script, selector))


def drop(browser, file):
    """Drop a file on the page as a hand would: a drop event that carries it."""
    script = """
        const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));
        const transfer = new DataTransfer();
        transfer.items.add(new File([bytes], "dropped.png", {type: "image/png"}));
        const options = {dataTransfer: transfer, bubbles: true, cancelable: true};
        for (const name of ["dragenter", "dragover", "drop"])
            document.body.dispatchEvent(new DragEvent(name, options));
    """
    browser.execute_script(script, base64.b64encode(file.read_bytes()).decode())


def test_typing_a_sentence_shows_photos_with_scores(page):
    search(page, "red white blue")
    assert cards(page)[0] == "sub/flag.png"
    assert 0.9 < float(text(page, ".photo .score")) <= 1
    assert loaded(page, ".photo img") > 10
    assert page.current_url.endswith("?q=red+white+blue")
    page.refresh()
    wait(page, lambda: cards(page)[:1] == ["sub/flag.png"])


def test_a_query_that_cannot_be_understood_is_explained(page):
    search(page, "zorblax")
    assert "out of the model's vocabulary" in text(page, "#status")
    assert cards(page) == []


def test_clicking_a_photo_says_why_it_matched(page):
    search(page, "red boat")
    page.find_element(By.CSS_SELECTOR, ".photo").click()
    script = "return [...document.querySelectorAll('#why-words .word')].map(word => word.innerText)"
    wait(page, lambda: len(page.execute_script(script)) == 2)  # in one go: the page may draw them again
    words = page.execute_script(script)
    assert [word.split("+")[0].strip() for word in words] == ["red", "boat"]
    assert float(words[0].split("+")[1]) > 0.9
    assert float(words[1].split("+")[1]) == 0
    wait(page, lambda: text(page, "#viewer-caption").startswith("A red picture"))
    wait(page, lambda: text(page, "#viewer-sentences li").endswith("a red picture"))
    assert loaded(page, "#viewer-photo") > 10
    wait(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "#viewer-similar img")) == 8)
    page.find_element(By.ID, "more-like-this").click()
    wait(page, lambda: page.find_element(By.ID, "query").get_attribute("value").startswith("photo:"))
    wait(page, lambda: cards(page)[0] == "red.png")


def test_dropping_a_photo_describes_it(page, tmp_path):
    drop(page, paint(tmp_path / "mine.png", "green"))
    wait(page, lambda: text(page, "#dropped-caption").startswith("A green picture"))
    wait(page, lambda: "a green picture" in text(page, "#dropped-sentences"))
    wait(page, lambda: cards(page)[:1] == ["green.png"])
    assert loaded(page, "#dropped-photo") > 10
    search(page, "blue")
    assert not page.find_element(By.ID, "dropped").is_displayed()


def test_choosing_a_file_does_the_same_and_a_bad_one_is_explained(page, tmp_path):
    page.find_element(By.ID, "file").send_keys(str(paint(tmp_path / "mine.png", "black")))
    wait(page, lambda: cards(page)[:1] == ["black.png"])
    bad = tmp_path / "bad.png"
    bad.write_text("no photo")
    page.find_element(By.ID, "file").send_keys(str(bad))
    wait(page, lambda: "annot be read" in text(page, "#status"))
    assert not page.find_element(By.ID, "dropped").is_displayed()


def test_the_keyboard_is_enough(page):
    page.switch_to.active_element.send_keys("blue", Keys.ENTER)
    wait(page, lambda: cards(page))
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    focused = page.switch_to.active_element.get_attribute("title")
    assert focused == cards(page)[1]
    page.switch_to.active_element.send_keys(Keys.ENTER)
    wait(page, lambda: text(page, "#viewer-path") == focused)
    page.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    wait(page, lambda: text(page, "#viewer-path") == cards(page)[0])
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait(page, lambda: not page.find_element(By.ID, "viewer").is_displayed())
    assert page.switch_to.active_element.get_attribute("title") == cards(page)[0]
    page.switch_to.active_element.send_keys("/")
    assert page.switch_to.active_element.get_attribute("id") == "query"


def test_names_captions_and_sentences_are_never_markup(page, tmp_path):
    page.execute_script("window.alert = (text) => { window.alerted = text; }")
    search(page, "yellow black")
    assert any("<script>" in card for card in cards(page))
    page.find_element(By.CSS_SELECTOR, ".photo").click()
    wait(page, lambda: HOSTILE in text(page, "#viewer-caption"))
    page.find_element(By.ID, "close").click()
    drop(page, paint(tmp_path / "mine.png", "red", "white", "blue"))
    wait(page, lambda: HOSTILE in text(page, "#dropped-caption"))
    wait(page, lambda: HOSTILE in text(page, "#dropped-sentences"))
    assert page.find_elements(By.CSS_SELECTOR, "main script, img[src='x']") == []


@pytest.mark.parametrize("width", [320, 390, 800])
def test_nothing_sticks_out_at_a_phone_s_width(page, width):
    resize(page, width, 800)
    search(page, "red")
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(overflow) <= 0
    page.find_element(By.CSS_SELECTOR, ".photo").click()
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#viewer-similar img"))
    inside = "const d = document.getElementById('viewer'); return d.scrollWidth - d.clientWidth"
    assert page.execute_script(inside) <= 0


def test_dark_mode(page):
    ground = "return getComputedStyle(document.body).backgroundColor"
    lightness = {}
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        red, green, blue = (int(part) for part in page.execute_script(ground)[4:-1].split(",")[:3])
        lightness[scheme] = red + green + blue
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert lightness["dark"] < 150
    assert lightness["light"] > 600
