"""The page in a real browser, on a desktop, on a phone and in dark mode: search, browse, filters, history,
selection, keys, live changes, hostile names and captions.
"""

import base64
import json
import shutil
import socket
import subprocess
import threading
import time
import zipfile
from urllib.parse import parse_qs, urlsplit

import pytest
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.server.access import Access
from fishermix_photos.server.app import create_app
from fishermix_photos.server.connections import Server
from fishermix_photos.server.live import LiveLibrary
from PIL import Image
from serving import id_of
from tiny_model import HOSTILE, NAMES, TinyModel, paint

pytest.importorskip("selenium")
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.slow  # a browser starts
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
SCREENS = {"desktop": (1366, 768, "light"), "phone": (390, 844, "light"), "dark": (1366, 768, "dark")}


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(tmp_path_factory, downloads):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("Debian's chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    yield browser
    browser.quit()


@pytest.fixture(params=SCREENS)
def screen(browser, request):
    width, height, scheme = SCREENS[request.param]
    resize(browser, width, height, mobile=request.param == "phone")
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def check_log(browser):
    assert browser.execute_script("return window.alerted") is None
    problems = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    # Queries and photos that there are not, requests that a new page has ended, and the style with which the
    # browser itself would center a picture: the policy forbids it as it forbids others.
    refused = ("400 (Bad Request)", "404 (Not Found)", "ERR_ABORTED", "/original - Applying inline style")
    assert [problem for problem in problems if not any(status in problem for status in refused)] == []


@pytest.fixture
def page(screen, address):
    """The page of a library that stays as it is."""
    screen.get(f"http://{address[0]}:{address[1]}/")
    wait(screen, lambda: " photos" in text(screen, "#folder") and cards(screen))
    wait(screen, lambda: text(screen, "#topics"))  # they move the photos down
    yield screen
    check_log(screen)


@pytest.fixture
def album(screen, live):
    """The page of 150 photos whose folder is watched."""
    screen.get(live.url)
    wait(screen, lambda: len(cards(screen)) >= 60)
    yield screen
    check_log(screen)


def resize(browser, width, height, mobile=False):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def wait(browser, condition):
    ignored = [StaleElementReferenceException, IndexError]
    return WebDriverWait(browser, 15, 0.05, ignored_exceptions=ignored).until(lambda _: condition())


def text(browser, selector):
    while True:
        try:
            return browser.find_element(By.CSS_SELECTOR, selector).text
        except StaleElementReferenceException:
            continue  # it was drawn again between the two questions


def find(browser, name):
    return browser.find_element(By.ID, name)


def cards(browser):
    return browser.execute_script("return [...document.querySelectorAll('.photo')].map(card => card.title)")


def press(browser, *keys):
    """Press keys; whatever has the focus gets them."""
    ActionChains(browser).send_keys(*keys).perform()


def search(browser, query):
    box = find(browser, "query")
    box.clear()
    box.send_keys(query, Keys.ENTER)
    done = ("likely", "maybe", "closest", "Perhaps", "first")
    wait(browser, lambda: any(word in text(browser, "#status") for word in done) or is_problem(browser))


def is_problem(browser):
    return "problem" in class_of(browser, "#status")


def class_of(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector).get_attribute("class")


def choose(browser, name, value):
    """Choose an option of a filter."""
    open_filters(browser)
    options = f"#{name} option[value='{value}']"  # they come with what the folder offers
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, options))
    wait(browser, lambda: browser.find_element(By.CSS_SELECTOR, options).click() or True)


def open_filters(browser):
    if not find(browser, "filters").is_displayed():
        browser.execute_script("document.getElementById('show-filters').click()")  # it may be scrolled away


def choose_folder(browser, *way):
    """Open the folders on the way to the last one, and choose that one."""
    open_filters(browser)
    wait(browser, lambda: has_folder(browser, way[0]))
    find(browser, "filter-in").click()
    for path in way[:-1]:
        toggle = f"#folders .toggle[data-path='{path}']"
        if browser.find_element(By.CSS_SELECTOR, toggle).get_attribute("aria-expanded") == "false":
            browser.find_element(By.CSS_SELECTOR, toggle).click()
    browser.find_element(By.CSS_SELECTOR, f"#folders .name[data-path='{way[-1]}']").click()


def has_folder(browser, path):
    return browser.find_elements(By.CSS_SELECTOR, f"#folders .name[data-path='{path}']")


def address_of(browser):
    return {name: values[0] for name, values in parse_qs(urlsplit(browser.current_url).query).items()}


def loaded(browser, selector):
    script = "const i = document.querySelector(arguments[0]); return i && i.complete && i.naturalWidth"
    return wait(browser, lambda: browser.execute_script(script, selector))


def is_open(browser):
    return browser.execute_script("return document.getElementById('viewer').open")


def open_card(browser, title):
    browser.execute_script(
        "[...document.querySelectorAll('.photo')].find(card => card.title === arguments[0]).click()", title
    )
    wait(browser, lambda: is_open(browser) and text(browser, "#viewer-path") == title)


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


# Search


def test_typing_a_sentence_shows_photos(page):
    search(page, "red white blue")
    assert cards(page)[0] == "photos/sub/flag.png"
    assert loaded(page, ".photo img") > 10
    assert page.current_url.endswith("?q=red+white+blue")
    page.refresh()
    wait(page, lambda: cards(page)[:1] == ["photos/sub/flag.png"])


def test_a_query_that_cannot_be_understood_is_explained(page):
    search(page, "zorblax")
    assert "no word that fishermix knows" in text(page, "#status")
    assert cards(page) == []
    search(page, "red zorblax")
    assert "zorblax" in text(page, "#remarks")
    assert cards(page)[0] == "photos/red.png"


def test_clicking_a_photo_says_why_it_matched(page):
    search(page, "red boat")
    page.find_element(By.CSS_SELECTOR, ".photo").click()
    script = "return [...document.querySelectorAll('#why-words .word')].map(word => word.innerText)"
    wait(page, lambda: page.execute_script(script))  # in one go: the page may draw them again
    assert page.execute_script(script) == ["red"]
    assert text(page, "#why-rest") == "Hardly counted: boat. Not understood: boat."
    wait(page, lambda: text(page, "#viewer-caption").startswith("Looks like: a red picture"))
    assert text(page, "#viewer-caption").endswith("(80 % sure)")
    assert loaded(page, "#viewer-photo") > 10
    wait(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "#viewer-similar img")) == 8)
    find(page, "more-like-this").click()
    wait(page, lambda: address_of(page).get("like"))
    wait(page, lambda: cards(page)[0] == "photos/red.png" and find(page, "dropped").is_displayed())
    page.back()
    wait(page, lambda: address_of(page).get("photo"))  # the photo from which the search was made


def test_dropping_a_photo_describes_it_and_back_leaves_it(page, tmp_path):
    drop(page, paint(tmp_path / "mine.png", "green"))
    wait(page, lambda: text(page, "#dropped-caption").startswith("Looks like: a green picture"))
    wait(page, lambda: cards(page)[:1] == ["photos/green.png"])
    assert loaded(page, "#dropped-photo") > 10
    open_card(page, "photos/green.png")
    page.back()
    wait(page, lambda: not is_open(page))
    assert find(page, "dropped").is_displayed()
    page.back()
    wait(page, lambda: not find(page, "dropped").is_displayed())


def test_a_dropped_photo_is_combined_with_words_and_filters_and_survives_a_reload(page, tmp_path):
    drop(page, paint(tmp_path / "mine.png", "green"))
    wait(page, lambda: cards(page)[:1] == ["photos/green.png"])
    search(page, "red")
    both = {"photos/red/red and green.png", "photos/green/green and red.png"}
    wait(page, lambda: both & {*cards(page)[:1]})
    choose_folder(page, "/photos", "/photos/sub")
    wait(page, lambda: cards(page) == ["photos/sub/flag.png"])
    page.refresh()
    wait(page, lambda: cards(page) == ["photos/sub/flag.png"])
    assert loaded(page, "#dropped-photo") > 10
    assert find(page, "show-filters").is_displayed()
    assert find(page, "query").get_attribute("value") == "red"
    find(page, "forget-photo").click()
    wait(page, lambda: "like" not in address_of(page))
    assert not find(page, "dropped").is_displayed()
    page.get(f"{page.current_url.split('?')[0]}?like=0123456789abcdef")  # of an earlier server
    wait(page, lambda: is_problem(page))
    assert "Drop it again" in text(page, "#status")


def test_escape_and_the_cross_of_the_box_go_with_what_is_shown(page):
    search(page, "red")
    box = find(page, "query")
    box.send_keys(" boat", Keys.ESCAPE)
    assert box.get_attribute("value") == "red"
    assert address_of(page) == {"q": "red"}
    page.execute_script(
        "const q = document.getElementById('query'); q.value = ''; q.dispatchEvent(new Event('search'))"
    )
    wait(page, lambda: address_of(page) == {})
    wait(page, lambda: text(page, "h2.divider"))


def test_choosing_a_file_does_the_same_and_a_bad_one_is_explained(page, tmp_path):
    bad = tmp_path / "bad.png"
    bad.write_text("no photo")
    find(page, "file").send_keys(str(bad))
    wait(page, lambda: is_problem(page) and "annot be read" in text(page, "#status"))
    assert not find(page, "dropped").is_displayed()
    find(page, "file").send_keys(str(paint(tmp_path / "mine.png", "black")))
    wait(page, lambda: cards(page)[:1] == ["photos/black.png"])
    assert not is_problem(page)
    good = address_of(page)
    find(page, "file").send_keys(str(bad))
    wait(page, lambda: is_problem(page) and "annot be read" in text(page, "#status"))
    assert address_of(page) == good  # the photo before it is still what is searched with
    assert cards(page)[0] == "photos/black.png"
    assert find(page, "dropped").is_displayed()


def test_names_and_captions_are_never_markup(page, tmp_path):
    page.execute_script("window.alert = (text) => { window.alerted = text; }")
    search(page, "yellow black")
    hostile = next(card for card in cards(page) if "<script>" in card)
    open_card(page, hostile)
    wait(page, lambda: HOSTILE in text(page, "#viewer-caption"))
    find(page, "close").click()
    wait(page, lambda: not is_open(page))
    drop(page, paint(tmp_path / "mine.png", "red", "white", "blue"))
    wait(page, lambda: HOSTILE in text(page, "#dropped-caption"))
    assert page.find_elements(By.CSS_SELECTOR, "main script, img[src='x']") == []


def test_an_unsure_caption_is_not_shown(page):
    """The model of these tests is unsure of black pictures."""
    open_card(page, "photos/red.png")
    wait(page, lambda: "a red picture" in text(page, "#viewer-caption"))
    go_to(page, "photos/black.png")
    wait(page, lambda: is_answered(page, "/api/caption", 2))
    assert not find(page, "viewer-caption").is_displayed()


def test_captions_can_be_switched_off(page):
    open_card(page, "photos/red.png")
    wait(page, lambda: "a red picture" in text(page, "#viewer-caption"))
    press(page, Keys.ESCAPE)
    wait(page, lambda: not is_open(page))
    try:
        find(page, "show-help").click()
        find(page, "want-captions").click()
        page.refresh()
        wait(page, lambda: "photos/blue.png" in cards(page))
        open_card(page, "photos/blue.png")
        wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#viewer-similar img"))
        assert not find(page, "viewer-caption").is_displayed()
        assert is_answered(page, "/api/caption", 0)
        assert not is_answered(page, "/api/caption", 1)
    finally:
        page.execute_script("localStorage.clear()")


def test_a_photo_is_zoomed_and_moved(page):
    open_card(
        page,
        "photos/red/red and blue.png" if "photos/red/red and blue.png" in cards(page) else cards(page)[0],
    )
    loaded(page, "#viewer-photo")
    width = "return document.getElementById('viewer-photo').getBoundingClientRect().width"
    left = "return document.getElementById('viewer-photo').getBoundingClientRect().left"
    whole = page.execute_script(width)
    ActionChains(page).double_click(find(page, "viewer-photo")).perform()
    wait(page, lambda: page.execute_script(width) > 2 * whole)
    wait(page, lambda: "/original" in find(page, "viewer-photo").get_attribute("src"))
    before = page.execute_script(left)
    ActionChains(page).click_and_hold(find(page, "viewer-photo")).move_by_offset(60, 20).release().perform()
    assert page.execute_script(left) == pytest.approx(before + 60, abs=2)
    press(page, "0")
    assert page.execute_script(width) == pytest.approx(whole, abs=1)
    press(page, "+")
    assert page.execute_script(width) == pytest.approx(1.5 * whole, rel=0.02)
    find(page, "next").click()  # the next photo is shown as a whole
    wait(page, lambda: page.execute_script(width) == pytest.approx(whole, abs=1))


def go_to(browser, title):
    """Click the card of another photo behind the open one."""
    browser.execute_script(
        "[...document.querySelectorAll('.photo')].find(card => card.title === arguments[0]).click()", title
    )
    wait(browser, lambda: text(browser, "#viewer-path") == title)


def is_answered(browser, path, times):
    """Whether the page has had that many answers from a path, and drawn what they say."""
    script = """
        const answers = performance.getEntriesByType('resource').filter((e) => e.name.includes(arguments[0]));
        return answers.filter((e) => e.responseEnd).length
    """
    return (
        browser.execute_script(script, path) >= times
        and browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        is not False
    )


def test_suggestions_are_what_the_photos_are_about(page):
    wait(page, lambda: text(page, "#topics"))
    color = next(word for word in text(page, "#topics").split() if word in NAMES)
    press_chip = "[...document.querySelectorAll('.chip')].find((c) => c.innerText === arguments[0]).click()"
    page.execute_script(press_chip, color)
    wait(page, lambda: text(page, "#status") == "Best first.")
    assert address_of(page)["q"] == color
    box = find(page, "query")
    box.clear()
    box.send_keys("white " + color[:2])
    script = "return [...document.querySelectorAll('#completions option')].map(option => option.value)"
    assert f"white {color}" in page.execute_script(script)


def test_no_suggestion_is_cut_off_at_the_edge(page):
    suggestions = """
        const topics = document.getElementById('topics');
        const edge = topics.getBoundingClientRect();
        const outside = (chip) => {
            const box = chip.getBoundingClientRect();
            return box.right > edge.right + 1 || box.bottom > edge.bottom + 1;
        };
        const shown = [...topics.children].filter((chip) => chip.offsetParent);
        return [shown.length, shown.filter(outside).map((chip) => chip.innerText)];
    """
    for width, fewest in {760: 1, 330: 1, 1900: 6}.items():
        resize(page, width, 800)
        wait(page, lambda: page.execute_script(suggestions)[1] == [])
        wait(page, lambda fewest=fewest: page.execute_script(suggestions)[0] >= fewest)
    resize(page, 760, 800)
    wait(page, lambda: page.execute_script(suggestions)[0] < 6)


def test_only_what_may_be_searched_for_instead_is_a_button(screen, judged):
    screen.get(f"{judged}?q=white+yelow+2004")
    wait(screen, lambda: len(screen.find_elements(By.CSS_SELECTOR, "#remarks button")) == 3)
    sentences = screen.find_elements(By.CSS_SELECTOR, "#remarks > span")
    buttons = screen.find_elements(By.CSS_SELECTOR, "#remarks button")
    assert all(0 < len(button.text) < len(said.text) for button, said in zip(buttons, sentences))
    width = "return document.documentElement.clientWidth"
    assert all(button.rect["x"] + button.rect["width"] <= screen.execute_script(width) for button in buttons)
    buttons[0].click()
    wait(screen, lambda: '"' in address_of(screen)["q"])
    screen.get(f"{judged}?q=zorblax+blorp+red")
    wait(screen, lambda: "'zorblax' and 'blorp' are" in text(screen, "#remarks"))  # one sentence for both


def test_photos_that_are_not_shown_yet_are_counted_too(screen, many_likely):
    screen.get(f"{many_likely}?q=red")
    wait(screen, lambda: text(screen, "#status") == "60 or more likely.")


def test_bands_say_how_likely_a_photo_is_right(screen, judged):
    screen.get(f"{judged}?q=red")
    wait(screen, lambda: text(screen, "#status") == "2 likely, 1 maybe.")
    script = """
        return [...document.querySelectorAll('#results section')].map((section) => [
            section.querySelector('h2')?.innerText || '',
            [...section.querySelectorAll('.photo')].map((card) =>
                card.title + ' ' + (card.querySelector('.band')?.innerText || ''))
        ])
    """
    likely = ["", ["photos/red.png likely", "photos/half.png likely"]]
    assert screen.execute_script(script) == [
        likely,
        ["Maybe", ["photos/third.png maybe"]],
        ["Unlikely", ["photos/white.png "]],
    ]
    search(screen, "white yelow")
    wait(screen, lambda: "Showing results for" in text(screen, "#remarks"))
    screen.execute_script("document.querySelector('#remarks button').click()")  # it is a link
    wait(screen, lambda: '"' in address_of(screen)["q"])
    wait(screen, lambda: "Showing results for" not in text(screen, "#remarks"))
    search(screen, "grey")
    wait(screen, lambda: text(screen, "#status") == "Nothing here looks like this. The closest photos:")
    assert screen.find_elements("css selector", "h2.divider") == []  # it is said once
    for query, said in {
        "grey": "Nothing here looks like this. The closest photos, newest first:",
        "red": "2 likely, 1 maybe, newest first.",
    }.items():
        screen.get(f"{judged}?q={query}&sort=date")
        wait(screen, lambda said=said: text(screen, "#status") == said)
    check_log(screen)


def test_the_viewer_says_how_likely_a_photo_is_right(screen, judged):
    screen.get(f"{judged}?q=red")
    wait(screen, lambda: cards(screen))
    open_card(screen, "photos/half.png")
    wait(screen, lambda: text(screen, "#why-sure") == "Likely right (68 %).")
    go_to(screen, "photos/third.png")
    wait(screen, lambda: text(screen, "#why-sure").startswith("Maybe right"))
    check_log(screen)


# The viewer


def test_the_place_is_a_link_to_a_map(screen, live):
    """The page itself asks no other machine: see `test_colors_fonts_and_focus`."""
    file = live.folder / "lima.jpg"
    exif = Image.Exif()
    exif[306] = "2021:12:31 12:00:00"  # photos without a date come last
    exif[34853] = {1: "S", 2: (12.0, 3.0, 0.0), 3: "W", 4: (77.0, 1.0, 30.0)}  # the IFD of the GPS
    Image.new("RGB", (30, 20), "white").save(file, exif=exif)
    screen.get(live.url)
    wait(screen, lambda: "album/lima.jpg" in cards(screen))
    open_card(screen, "album/lima.jpg")
    link = "return (({href, rel, target}) => [href, rel, target])(document.querySelector('#viewer-facts a'))"
    wait(screen, lambda: screen.find_elements(By.CSS_SELECTOR, "#viewer-facts a"))
    href, rel, target = screen.execute_script(link)
    assert href.startswith("https://www.openstreetmap.org/?mlat=-12.05&mlon=-77.025")
    assert "noreferrer" in rel
    assert target == "_blank"
    file.unlink()
    check_log(screen)


@pytest.mark.parametrize("size", [(300, 1500), (1500, 300), (600, 600)])
def test_the_whole_photo_is_in_the_window(screen, live, size):
    name = f"2021-12-31 shape {size[0]}x{size[1]}.png"  # photos without a date come last
    paint(live.folder / name, "red", "blue", size=size)
    screen.get(live.url)
    wait(screen, lambda: f"album/{name}" in cards(screen))
    open_card(screen, f"album/{name}")
    wait(screen, lambda: screen.execute_script("return document.getElementById('viewer-photo').complete"))
    inside = """
        const image = document.getElementById('viewer-photo');
        const [box, shape] = [image.getBoundingClientRect(), image.naturalWidth / image.naturalHeight];
        const width = Math.min(box.width, box.height * shape);  // object-fit: contain
        return [box.left, box.top, innerWidth - box.right, innerHeight - box.bottom, width / shape, width]
    """
    *margins, height, width = screen.execute_script(inside)
    assert min(margins) >= 0
    assert max(height, width) > 190  # and not tiny
    assert "contain" in screen.execute_script(
        "return getComputedStyle(document.getElementById('viewer-photo')).objectFit"
    )
    for button in ("close", "next", "previous", "download"):
        rect = find(screen, button).rect
        assert rect["x"] >= 0
        assert rect["x"] + rect["width"] <= screen.execute_script("return innerWidth")
    check_log(screen)


def test_back_closes_the_viewer_and_returns_to_the_last_search(page):
    search(page, "red")
    search(page, "blue")
    first = cards(page)[0]
    open_card(page, first)
    assert address_of(page)["photo"]
    find(page, "next").click()
    wait(page, lambda: text(page, "#viewer-path") == cards(page)[1])
    page.back()  # steps between photos are not steps of the history
    wait(page, lambda: not is_open(page))
    assert address_of(page) == {"q": "blue"}
    assert cards(page)[0] == first
    page.back()
    wait(page, lambda: cards(page)[0] == "photos/red.png")
    assert find(page, "query").get_attribute("value") == "red"
    page.back()
    wait(page, lambda: text(page, "h2.divider"))  # all photos, by month
    page.forward()
    wait(page, lambda: cards(page)[0] == "photos/red.png")


def test_pressing_escape_twice_is_one_step_back(page):
    search(page, "red")
    search(page, "blue")
    open_card(page, cards(page)[0])
    page.execute_script("""
        const viewer = document.getElementById('viewer');
        viewer.dispatchEvent(new Event('cancel', {cancelable: true}));  // before the browser has gone back
        viewer.close();
    """)
    wait(page, lambda: "photo" not in address_of(page))
    time.sleep(0.3)
    assert address_of(page) == {"q": "blue"}
    open_card(page, cards(page)[1])
    press(page, Keys.ESCAPE)
    wait(page, lambda: not is_open(page))


@pytest.mark.parametrize("how", ["viewer.close()", "document.getElementById('close').click()"])
def test_a_photo_that_is_opened_before_the_browser_has_gone_back_stays_open(page, how):
    search(page, "red")
    search(page, "blue")
    first, second = cards(page)[:2]
    open_card(page, first)
    page.execute_script(f"""
        const viewer = document.getElementById('viewer');
        {how};
        [...document.querySelectorAll('.photo')].find(card => card.title === arguments[0]).click();
    """, second)  # fmt: skip
    wait(page, lambda: is_open(page) and text(page, "#viewer-path") == second)
    time.sleep(0.3)
    assert is_open(page)
    page.back()
    wait(page, lambda: not is_open(page))
    assert address_of(page) == {"q": "blue"}


def test_several_photos_before_the_browser_has_gone_back_are_one_step(page):
    search(page, "blue")
    open_card(page, cards(page)[0])
    page.execute_script("""
        document.getElementById('close').click();
        for (const card of [...document.querySelectorAll('.photo')].slice(1, 4)) card.click();
    """)
    wait(page, lambda: is_open(page) and text(page, "#viewer-path") == cards(page)[3])
    find(page, "close").click()
    wait(page, lambda: not is_open(page))
    assert address_of(page) == {"q": "blue"}


def test_a_search_before_the_browser_has_gone_back_from_a_photo_is_shown(page):
    search(page, "red")
    open_card(page, cards(page)[0])
    page.execute_script("""
        document.getElementById('close').click();
        document.getElementById('query').value = 'blue';
        document.getElementById('form').requestSubmit();
    """)
    wait(page, lambda: cards(page)[:1] == ["photos/blue.png"])
    time.sleep(0.3)
    assert address_of(page) == {"q": "blue"}
    page.back()
    wait(page, lambda: cards(page)[:1] == ["photos/red.png"])
    assert not is_open(page)


def test_the_address_opens_the_photo(page, library):
    photo = id_of(library, "sub/flag.png")
    page.get(page.current_url.split("?")[0] + f"?q=green&photo={photo}")
    wait(page, lambda: is_open(page) and text(page, "#viewer-path") == "photos/sub/flag.png")
    find(page, "close").click()
    wait(page, lambda: not is_open(page))
    assert address_of(page) == {"q": "green"}
    page.get(page.current_url.split("?")[0] + "?photo=0000000000000000")
    wait(page, lambda: "no such photo" in text(page, "#toast"))
    assert not is_open(page)


def test_open_original_download_and_copy_path(album, live, downloads):
    name = "album/2019/Holidays/IMG_20190101_120000.png"
    album.get(f"{live.url}?after=2019&before=2019-01-02")
    wait(album, lambda: cards(album) == [name])
    open_card(album, name)
    original = find(album, "open-original").get_attribute("href")
    album.switch_to.new_window("tab")
    album.get(original)
    assert album.execute_script("return document.images[0].naturalWidth") == 48
    album.close()
    album.switch_to.window(album.window_handles[0])
    press(album, "d")
    content = (live.folder.parent / name).read_bytes()
    wait(album, lambda: read(downloads / "IMG_20190101_120000.png") == content)
    (downloads / "IMG_20190101_120000.png").unlink()
    album.execute_script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    wait(album, lambda: "PNG" in text(album, "#viewer-facts"))
    press(album, "c")
    wait(album, lambda: album.execute_script("return window.copied") == str(live.folder.parent / name))
    wait(album, lambda: text(album, "#toast") == "Copied the path.")
    assert "1 January 2019" in text(album, "#viewer-facts")


def read(file):
    return file.read_bytes() if file.is_file() else None


# Browsing, filters, scrolling


RECTANGLES = """
    return [...document.querySelectorAll('.photo')].map((card) => {
        const box = card.getBoundingClientRect();
        return [Math.round(box.top), Math.round(box.bottom), Math.round(box.right)];
    })
"""


@pytest.mark.parametrize("query", ["", "?q=red"])
def test_three_rows_of_photos_are_on_the_first_screen(screen, live, query):
    screen.get(live.url + query)
    wait(screen, lambda: len(cards(screen)) >= 60 and text(screen, "#folder"))
    height = screen.execute_script("return innerHeight")
    rows = {}
    for top, bottom, right in screen.execute_script(RECTANGLES):
        rows.setdefault(top, []).append((bottom, right))
    assert len([top for top in rows if max(rows[top])[0] <= height]) >= 3
    # Justified: the photos of a row are equally high, and full rows end at the same line.
    assert all(max(row)[0] - min(row)[0] <= 1 for row in rows.values())
    ends = [max(right for _, right in row) for row in rows.values()]
    assert sum(abs(end - max(ends)) <= 2 for end in ends) >= 2
    screen.execute_script("scrollTo(0, 1000)")
    wait(screen, lambda: screen.execute_script("return scrollY") > 500)
    top = "return document.getElementById('query').getBoundingClientRect().top"
    wait(screen, lambda: 0 <= screen.execute_script(top) < 60)  # it sticks
    check_log(screen)


def test_the_years_lead_to_their_photos(album, live):
    undated = live.folder / "without a date.png"
    paint(undated, "white")
    years = "return [...document.querySelectorAll('#years button')].map((button) => button.dataset.year)"
    wait(album, lambda: album.execute_script(years) == ["2021", "2020", "2019", ""])
    album.execute_script("document.querySelector('#years [data-year=\"\"]').click()")
    wait(album, lambda: cards(album)[-1] == "album/without a date.png")
    album.execute_script("document.querySelector('#years [data-year=\"2019\"]').click()")
    current = "return document.querySelector('#years [aria-current=true]')?.innerText"
    first = """
        const top = document.querySelector('header').offsetHeight;
        const isSeen = (card) => card.getBoundingClientRect().bottom > top;
        return [...document.querySelectorAll('.photo')].find(isSeen).title
    """
    wait(album, lambda: "IMG_2019" in album.execute_script(first))
    wait(album, lambda: album.execute_script(current) == "2019")

    def scroll_up():
        album.execute_script("scrollTo(0, 0)")
        return any("IMG_20211" in card for card in cards(album))  # the newest

    wait(album, scroll_up)
    dated = [card.split("IMG_")[1] for card in cards(album) if "IMG_" in card]
    assert dated == sorted(dated, reverse=True)
    assert len(dated) == len({*dated}) == 150
    undated.unlink()
    wait(album, lambda: album.execute_script(years) == ["2021", "2020", "2019"])


def test_folders_are_a_tree_with_numbers(album):
    open_filters(album)
    wait(album, lambda: has_folder(album, "/album"))
    find(album, "filter-in").click()
    names = (
        "return [...document.querySelectorAll('#folders .name')].map((name) => name.innerText.split('\\n'))"
    )
    listed = {name: int(number.replace(",", "")) for name, number in album.execute_script(names)[1:]}
    assert {"2019": 50, "2020": 50, "2021": 50}.items() <= listed.items()
    assert "Family" not in listed  # folders inside are closed
    album.find_element(By.CSS_SELECTOR, "#folders .toggle[data-path='/album/2020']").click()
    assert ["Family", "25"] in album.execute_script(names)
    press(album, Keys.ESCAPE)
    wait(album, lambda: not find(album, "folders").is_displayed())


# Duplicates


def test_near_copies_take_one_place_and_a_badge_opens_them(screen, copies):
    screen.get(f"{copies.url}?q=red")
    wait(screen, lambda: cards(screen))
    shown = {"photos/a.png", "photos/b.png", "photos/c.png"} & {*cards(screen)}
    assert len(shown) == 1
    assert text(screen, "button.badge") == "+2 similar"
    screen.execute_script("document.querySelector('button.badge').click()")
    wait(screen, lambda: is_open(screen) and {text(screen, "#viewer-path")} == shown)
    names = "return [...document.querySelectorAll('#viewer-copies button')].map((button) => button.title)"
    wait(screen, lambda: len(screen.execute_script(names)) == 2)
    others = screen.execute_script(names)
    assert {*others} | shown == {"photos/a.png", "photos/b.png", "photos/c.png"}
    similar = "return [...document.querySelectorAll('#viewer-similar button')].map((button) => button.title)"
    wait(screen, lambda: screen.execute_script(similar))
    assert not {*others} & {*screen.execute_script(similar)}  # each is listed once
    screen.execute_script("document.querySelector('#viewer-copies button').click()")
    wait(screen, lambda: text(screen, "#viewer-path") == others[0])
    check_log(screen)


def test_duplicates_are_reviewed_and_listed(screen, copies, downloads):
    screen.get(copies.url)
    wait(screen, lambda: len(cards(screen)) == 6)
    find(screen, "show-duplicates").click()
    wait(screen, lambda: text(screen, "#status").startswith("2 pictures with 3 copies"))
    groups = """
        return [...document.querySelectorAll('#results section')].map((section) => [
            section.querySelector('h2').innerText,
            [...section.querySelectorAll('.photo')].map((card) => card.title),
            section.querySelector('.badge').innerText,
        ])
    """
    large, small, flag, other = (
        f"photos/{name}" for name in ("a.png", "b.png", "flag.png", "copy of flag.png")
    )
    shown = screen.execute_script(groups)
    assert [[heading, sorted(paths), keep.split(":")[0]] for heading, paths, keep in shown] == [
        ["3 copies of one picture", sorted([large, small, "photos/c.png"]), "keep"],
        ["2 equal files", sorted([flag, other]), "keep"],
    ]
    assert cards(screen)[0] == large  # the most pixels
    covers = """
        const [badge, box] = ['.badge', '.pick input'].map((one) =>
            document.querySelector(`#results ${one}`).getBoundingClientRect());
        return box.right > badge.left && box.bottom > badge.top;
    """
    assert not screen.execute_script(covers)  # why it is kept can be read
    assert "600 × 400" in text(screen, ".below")
    find(screen, "select-copies").click()
    assert text(screen, "#selected-count") == "3 selected"
    find(screen, "save-paths").click()
    wait(screen, lambda: read(downloads / "photos.txt"))
    listed = (downloads / "photos.txt").read_text().splitlines()
    (downloads / "photos.txt").unlink()
    assert sorted(listed) == sorted(
        str(copies.folder.parent / path) for path in cards(screen)[1:3] + cards(screen)[4:]
    )
    assert all((copies.folder.parent / path).is_file() for path in cards(screen))  # nothing is deleted
    screen.back()
    wait(screen, lambda: len(cards(screen)) == 6)
    check_log(screen)


def test_browsing_by_date_and_more_by_scrolling(album, live):
    assert text(album, "h2.divider").endswith(" 2021") or "2026" in text(album, "h2.divider")
    seen = len(cards(album))
    assert seen < 150
    scroll_down(album, lambda: len(cards(album)) >= 150)
    dated = [card for card in cards(album) if "IMG_" in card]
    assert len(dated) == len(set(dated)) == 150
    newest = sorted(dated, key=lambda path: path.split("IMG_")[1], reverse=True)
    assert dated == newest
    choose(album, "filter-sort", "oldest")
    wait(album, lambda: "20190101" in cards(album)[0])
    assert text(album, "h2.divider") == "January – March 2019"  # five photos each


def test_more_photos_come_although_the_end_of_the_list_never_left_the_screen(album):
    # Whoever scrolls as soon as photos are drawn is at the end before the browser paints a frame without it.
    scroll_down(album, lambda: len(cards(album)) >= 150)
    follow = """
        new MutationObserver(() => scrollTo(0, document.body.scrollHeight))
            .observe(arguments[0], {childList: true})
    """
    album.execute_script(follow, find(album, "results"))
    choose(album, "filter-sort", "oldest")
    wait(album, lambda: "20190101" in cards(album)[0] and len(cards(album)) >= 150)


def scroll_down(browser, done):
    def step():
        browser.execute_script("scrollTo(0, document.body.scrollHeight)")
        return done()

    wait(browser, step)


def test_more_than_60_results_and_the_place_in_them(album):
    search(album, "red")
    assert len(cards(album)) < 100
    scroll_down(album, lambda: len(cards(album)) > 140)
    place = album.execute_script("return scrollY")
    assert place > 1000
    visible = """
        const cards = [...document.querySelectorAll('.photo')];
        return cards.find((card) => card.getBoundingClientRect().top > 0).title
    """
    open_card(album, album.execute_script(visible))
    press(album, "m")
    wait(
        album,
        lambda: "like" in address_of(album) and album.execute_script("return scrollY") == 0,
    )
    album.back()
    wait(album, lambda: is_open(album))
    album.back()
    wait(album, lambda: not is_open(album) and len(cards(album)) > 140)
    wait(album, lambda: abs(album.execute_script("return scrollY") - place) < 50)


def test_filters_and_sort_are_in_the_address(album):
    choose(album, "filter-year", "2020")
    wait(album, lambda: all("IMG_2020" in card for card in cards(album)))
    choose_folder(album, "/album", "/album/2020", "/album/2020/Family")
    wait(album, lambda: all(card.startswith("album/2020/Family") for card in cards(album)))
    assert address_of(album) == {"after": "2020", "before": "2021", "in": "/album/2020/Family"}
    assert text(album, "#status") == f"{len(cards(album))} photos"
    search(album, "green")
    assert address_of(album)["in"] == "/album/2020/Family"
    assert all(card.startswith("album/2020/Family") for card in cards(album))
    choose(album, "filter-sort", "date")
    wait(album, lambda: text(album, "#status") == "Newest first.")
    assert cards(album) == sorted(cards(album), reverse=True)
    album.refresh()
    wait(album, lambda: text(album, "#status") == "Newest first.")
    wait(album, lambda: find(album, "filter-year").get_attribute("value") == "2020")
    open_filters(album)
    find(album, "clear-filters").click()
    wait(album, lambda: any(card.startswith("album/2019") for card in cards(album)))
    assert address_of(album) == {"q": "green"}
    choose(album, "filter-kind", "PNG")
    wait(album, lambda: address_of(album)["kind"] == "PNG")
    album.get(album.current_url.split("?")[0] + "?after=2019-03-05&before=2019-03-07")
    wait(album, lambda: len(cards(album)) == 2 or all("201903" in card for card in cards(album)))
    assert find(album, "filter-to").get_attribute("value") == "2019-03-06"


# Selection


def test_selecting_several_and_exporting_them(album, live, downloads):
    album.get(f"{live.url}?sort=oldest")
    wait(album, lambda: "20190101" in cards(album)[0])
    album.execute_script(  # a click with shift selects the range
        "const boxes = document.querySelectorAll('.pick input'); boxes[0].click();"
        "boxes[3].dispatchEvent(new MouseEvent('click', {shiftKey: true, bubbles: true}))",
    )
    wait(album, lambda: text(album, "#selected-count") == "4 selected")
    chosen = cards(album)[:4]
    find(album, "save-paths").click()
    wanted = "".join(f"{live.folder.parent / path}\n" for path in chosen).encode()
    wait(album, lambda: read(downloads / "photos.txt") == wanted)
    (downloads / "photos.txt").unlink()
    album.execute_script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    find(album, "copy-paths").click()
    wait(album, lambda: album.execute_script("return window.copied") == wanted.decode().strip())
    find(album, "select-none").click()
    assert not find(album, "selection").is_displayed()
    assert album.execute_script("return document.querySelectorAll('.pick input:checked').length") == 0


def test_a_selection_is_downloaded_and_copied(screen, live, served, downloads, tmp_path):
    access = Access()
    host, port = served(app=create_app(live.live, access=access))
    screen.get(f"http://{host}:{port}/?token={access.token}")
    wait(screen, lambda: len(cards(screen)) >= 60)
    screen.get(f"http://{host}:{port}/?sort=oldest")
    wait(screen, lambda: "20190101" in cards(screen)[0] and find(screen, "add-folder").is_displayed())
    pick = "for (const box of [...document.querySelectorAll('.pick input')].slice(0, 3)) box.click()"
    screen.execute_script(pick)
    names = [path.rpartition("/")[2] for path in cards(screen)[:3]]
    wait(screen, lambda: text(screen, "#selected-count") == "3 selected")
    find(screen, "save-zip").click()
    wait(screen, lambda: (downloads / "photos.zip").is_file())
    with zipfile.ZipFile(downloads / "photos.zip") as archive:
        assert archive.testzip() is None
        assert [name.rpartition("/")[2] for name in archive.namelist()] == names
    (downloads / "photos.zip").unlink()
    (tmp_path / "a folder").mkdir()
    find(screen, "copy-files").click()
    wait(screen, lambda: find(screen, "place-path").get_attribute("value"))
    type_path(screen, tmp_path)
    find(screen, "place-open").click()
    wait(screen, lambda: "a folder" in text(screen, "#place-list"))
    screen.find_element(By.CSS_SELECTOR, "#place-list li:last-child button").click()
    wait(screen, lambda: find(screen, "place-path").get_attribute("value") == str(tmp_path / "a folder"))
    find(screen, "place-choose").click()
    wait(screen, lambda: not find(screen, "places").is_displayed())
    assert sorted(path.name for path in (tmp_path / "a folder").iterdir()) == sorted(names)
    check_log(screen)


def type_path(browser, path):
    box = find(browser, "place-path")
    box.clear()
    box.send_keys(str(path))


def test_an_empty_library_gets_its_first_folder_on_the_page(screen, served, tmp_path):
    access = Access()
    live = LiveLibrary(lambda: PhotoLibrary(tmp_path / "library", TinyModel()))
    live.start()
    host, port = served(app=create_app(live, access=access))
    paint(tmp_path / "Pictures" / "red.png", "red")
    screen.get(f"http://{host}:{port}/")
    wait(screen, lambda: find(screen, "add-first-folder").is_displayed())
    wait(screen, lambda: not find(screen, "topics").is_displayed())  # suggestions that there are not
    find(screen, "add-first-folder").click()
    wait(screen, lambda: "terminal" in text(screen, "#toast"))  # without the link, it is not allowed
    screen.get(f"http://{host}:{port}/?token={access.token}")
    wait(screen, lambda: find(screen, "add-first-folder").is_displayed())
    wait(
        screen,
        lambda: (
            screen.execute_script(
                "return fetch('/api/status').then((answer) => answer.json()).then((status) => status.changes)"
            )
            == "allowed"
        ),
    )
    find(screen, "add-first-folder").click()
    wait(screen, lambda: find(screen, "place-path").get_attribute("value"))
    type_path(screen, tmp_path / "nowhere")
    find(screen, "place-choose").click()
    wait(screen, lambda: "There is no folder" in text(screen, "#place-problem"))
    type_path(screen, tmp_path / "Pictures")
    find(screen, "place-choose").click()
    wait(screen, lambda: cards(screen) == ["Pictures/red.png"])
    assert not find(screen, "empty").is_displayed()
    live.stop()
    screen.get("about:blank")
    screen.get_log("browser")  # one request was refused


def test_the_page_shows_the_text_that_a_photo_was_found_by(screen, served, tmp_path):
    paint(tmp_path / "Pictures" / "sign.png", "red")
    paint(tmp_path / "Pictures" / "wall.png", "blue")
    read, go_on = [], threading.Event()

    class Reader:
        def __call__(self, image):
            read.append(image)
            assert len(read) < 2 or go_on.wait(30)
            return f"Theatre {HOSTILE} BROADWAY" if image.getpixel((1, 1))[0] > 200 else ""

        def close(self):
            pass

    live = LiveLibrary(
        lambda: PhotoLibrary(tmp_path / "library", TinyModel()), [tmp_path / "Pictures"], open_reader=Reader
    )
    live.start()
    host, port = served(app=create_app(live))
    screen.get(f"http://{host}:{port}/")
    wait(screen, lambda: text(screen, "#live-text").startswith("Reading text in photos: 1 of 2"))
    go_on.set()
    wait(screen, lambda: not find(screen, "live").is_displayed())
    screen.get(f"http://{host}:{port}/?q=broadway")
    wait(screen, lambda: cards(screen) == ["Pictures/sign.png"])
    assert text(screen, ".below").startswith("text in the photo: Theatre <script>alert(1)</script>")
    assert text(screen, "#remarks").startswith("Only photos with the name or text 'broadway': 1.")
    live.stop()
    check_log(screen)


# Keys


def test_the_keyboard_is_enough(page):
    page.execute_script("document.activeElement.blur()")
    press(page, "/")
    press(page, "blue", Keys.ENTER)
    wait(page, lambda: text(page, "#status") == "Best first.")
    press(page, Keys.ARROW_DOWN)
    press(page, Keys.ARROW_RIGHT)
    focused = page.switch_to.active_element.get_attribute("title")
    assert focused == cards(page)[1]
    press(page, Keys.ENTER)
    wait(page, lambda: is_open(page) and text(page, "#viewer-path") == focused)
    press(page, Keys.ARROW_LEFT)
    wait(page, lambda: text(page, "#viewer-path") == cards(page)[0])
    press(page, "x")
    assert text(page, "#pick") == "Selected"
    press(page, Keys.ESCAPE)
    wait(page, lambda: not is_open(page))
    wait(page, lambda: page.switch_to.active_element.get_attribute("title") == cards(page)[0])
    press(page, Keys.ARROW_RIGHT)
    press(page, "x")
    assert text(page, "#selected-count") == "2 selected"
    press(page, Keys.ESCAPE)
    assert not find(page, "selection").is_displayed()
    press(page, Keys.END)
    assert page.switch_to.active_element.get_attribute("title") == cards(page)[-1]
    press(page, Keys.HOME)
    press(page, Keys.ARROW_DOWN)
    below = page.switch_to.active_element
    assert below.rect["y"] > page.find_element(By.CSS_SELECTOR, ".photo").rect["y"]
    press(page, Keys.ARROW_UP)
    assert page.switch_to.active_element.get_attribute("title") == cards(page)[0]
    press(page, "?")
    assert find(page, "help").is_displayed()
    press(page, Keys.ESCAPE)
    wait(page, lambda: not find(page, "help").is_displayed())
    press(page, "l")
    assert page.switch_to.active_element.get_attribute("id") == "filter-year"
    page.execute_script("document.activeElement.blur()")
    press(page, "b")
    wait(page, lambda: address_of(page) == {})
    press(page, "/")
    assert page.switch_to.active_element.get_attribute("id") == "query"


# Live


def test_new_changed_and_deleted_photos_appear_by_themselves(album, live):
    file = live.folder / f"2021-12-31 new {time.monotonic_ns()}.png"  # photos without a date come last
    new = f"album/{file.name}"
    paint(file, "yellow")
    wait(album, lambda: new in cards(album))
    find_picture = (
        "return [...document.querySelectorAll('.photo')].find(c => c.title === arguments[0])?.firstChild.src"
    )
    before = album.execute_script(find_picture, new)
    paint(file, "green", "green")
    wait(album, lambda: album.execute_script(find_picture, new) != before)
    search(album, "green")
    wait(album, lambda: new in cards(album))
    file.unlink()
    wait(album, lambda: new not in cards(album))


def test_a_change_during_a_request_is_not_missed(album, live):
    file = live.folder / f"2019-12-31 meanwhile {time.monotonic_ns()}.png"
    album.execute_script("""
        window.ask = window.fetch;
        window.late = 0;
        window.fetch = async (...given) => {
            const answer = await window.ask(...given);
            if (!String(given[0]).startsWith("/api/browse") || window.late++) return answer;
            await new Promise((done) => { window.release = done; });  // the answer is older than the change
            return answer;
        };
        document.querySelector("#years [data-year='2019']").click();
    """)
    wait(album, lambda: album.execute_script("return Boolean(window.release)"))
    paint(file, "yellow")
    browse = """
        const done = arguments[0];
        window.ask("/api/browse?n=200").then((answer) => answer.json())
            .then((found) => done(found.photos.map((photo) => photo.path.split("/").pop())));
    """
    wait(album, lambda: file.name in album.execute_async_script(browse))
    time.sleep(1)  # the page hears of it
    album.execute_script("window.release()")
    wait(album, lambda: f"album/{file.name}" in cards(album))
    file.unlink()


def test_progress_and_problems_are_shown(album, live):
    """The folder disappears, as an unmounted disk does, and comes back."""
    moved = live.folder.with_name("unmounted")
    live.folder.rename(moved)
    try:
        wait(album, lambda: "does not exist" in text(album, "#live-text"))
    finally:
        moved.rename(live.folder)
    wait(album, lambda: not find(album, "live").is_displayed())
    assert len(cards(album)) >= 60


def test_new_results_of_a_search_wait_for_a_click(album, live):
    """They would move the photos that somebody looks at."""
    search(album, "yellow")
    before = cards(album)
    below = """
        const [photo, line] = ['.photo', '#status'].map((one) => document.querySelector(one));
        return photo.getBoundingClientRect().top - line.getBoundingClientRect().bottom
    """
    place = album.execute_script(below)
    files = [live.folder / f"yellow {time.monotonic_ns()} {number}.png" for number in range(2)]
    for number, file in enumerate(files):
        paint(file, "yellow", size=(40 + number, 32))
    wait(album, lambda: text(album, "#fresh") == "2 new results, show")
    assert cards(album) == before
    assert album.execute_script(below) == place
    find(album, "fresh").click()
    wait(album, lambda: {f"album/{file.name}" for file in files} <= {*cards(album)})
    assert not find(album, "fresh").is_displayed()
    for file in files:
        file.unlink()
    wait(album, lambda: not {f"album/{file.name}" for file in files} & {*cards(album)})


def test_new_results_are_counted_without_the_unlikely_ones(screen, judged_live):
    screen.get(f"{judged_live.url}?q=red")
    wait(screen, lambda: text(screen, "#status") == "1 likely.")
    files = [judged_live.folder / f"{number}.png" for number in range(3)]
    paint(files[0], "red", "blue")
    paint(files[1], "red", "black", "black", "black", "black")
    paint(files[2], "red", "green", "green", "green", "green")
    wait(screen, lambda: "5 photos" in text(screen, "#folder") and find(screen, "fresh").is_displayed())
    wait(screen, lambda: text(screen, "#fresh") == "1 new result, show")
    find(screen, "fresh").click()
    wait(screen, lambda: {f"photos/{file.name}" for file in files} <= {*cards(screen)})


def test_a_server_that_is_gone_is_reported_once(screen, shown):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    host, port = listener.getsockname()
    server = Server(create_app(shown))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    screen.get(f"http://{host}:{port}/")
    wait(screen, lambda: cards(screen))
    server.should_exit = True
    thread.join()
    search_box = find(screen, "query")
    search_box.send_keys("red", Keys.ENTER)
    wait(screen, lambda: "does not respond" in text(screen, "#live-text"))
    wait(screen, lambda: text(screen, "#status") == "")
    assert "fetch" not in text(screen, "body")
    screen.get("about:blank")
    screen.get_log("browser")


# A token


def test_the_link_opens_the_page_and_the_address_forgets_the_token(screen, served, shown):
    access = Access(with_token=True)
    host, port = served(app=create_app(shown, access=access))
    screen.delete_all_cookies()
    screen.get(f"http://{host}:{port}/")
    assert "scan the QR code" in text(screen, "body")
    screen.get(f"http://{host}:{port}/?token=wrong")
    assert "scan the QR code" in text(screen, "body")
    screen.get_log("browser")  # these were refused
    screen.get(f"http://{host}:{port}/?token={access.token}")
    wait(screen, lambda: screen.current_url == f"http://{host}:{port}/" and len(cards(screen)) > 20)
    assert loaded(screen, ".photo img") > 10
    assert screen.execute_script("return document.cookie") == ""  # scripts cannot read it
    [cookie] = [one for one in screen.get_cookies() if one["name"] == f"fishermix_{port}"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    search(screen, "red")
    assert cards(screen)[0] == "photos/red.png"
    check_log(screen)
    screen.delete_all_cookies()
    wait(screen, lambda: "signed out" in text(screen, "#live-text"))
    screen.get_log("browser")


# The look


@pytest.mark.parametrize("width", [320, 390, 800, 1366])
def test_nothing_sticks_out(page, width):
    resize(page, width, 800)
    search(page, "yellow black")
    open_filters(page)
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(overflow) <= 0
    open_card(page, next(card for card in cards(page) if "<script>" in card))  # a long name
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#viewer-similar img"))
    inside = "const d = document.getElementById('viewer'); return d.scrollWidth - d.clientWidth"
    assert page.execute_script(inside) <= 0


def test_colors_fonts_and_focus(page):
    """Dark where the system is, no font or picture from elsewhere, a visible focus, no motion if unwanted."""
    ground = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    dark = page.execute_script("return matchMedia('(prefers-color-scheme: dark)').matches")
    lightness = sum(int(part) for part in ground[4:-1].split(",")[:3])
    assert lightness < 150 if dark else lightness > 600
    resources = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith(page.current_url.split("?")[0]) for name in resources)
    press(page, Keys.TAB)
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(outline) == "solid"
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    )
    moving = "return getComputedStyle(document.querySelector('.photo')).transitionDuration"
    assert page.execute_script(moving) == "0s"


def test_every_control_has_a_name(page):
    search(page, "red")
    page.find_element(By.CSS_SELECTOR, ".photo").click()
    wait(page, lambda: page.find_elements(By.CSS_SELECTOR, "#viewer-similar img"))
    script = """
        return [...document.querySelectorAll('button, a, input, select, summary, video')].filter((e) =>
            !e.textContent?.trim() && !e.getAttribute('aria-label') && !e.labels?.length
            && e.tagName !== 'VIDEO').map((e) => e.outerHTML)
    """
    assert page.execute_script(script) == []
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    nameless = [
        node
        for node in tree
        if node.get("role", {}).get("value") in ("button", "link", "combobox", "checkbox", "searchbox")
        and not node.get("name", {}).get("value")
        and not node.get("ignored")
    ]
    assert nameless == [], json.dumps(nameless)[:500]


# axe-core: contrast, names, roles, order of headings

AXE = "axe-core@4.14.0"


@pytest.fixture(scope="session")
def axe(request):
    """The source of axe-core, which npm downloads once."""
    folder = request.config.cache.mkdir("axe-core")
    file = folder / "package" / "axe.min.js"
    if not file.is_file():
        if not shutil.which("npm"):
            pytest.skip("npm is not installed, which has axe-core")
        try:
            command = ["npm", "pack", "--silent", "--pack-destination", str(folder), AXE]
            subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=folder)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"axe-core cannot be downloaded: {type(error).__name__}")
        shutil.unpack_archive(next(folder.glob("*.tgz")), folder, "gztar")
    return file.read_text("utf8")


def find_violations(browser, axe):
    browser.execute_script(axe)
    script = """
        const done = arguments[0];
        axe.run(document, {resultTypes: ['violations']}).then(({violations}) => done(violations.flatMap(
            ({id, nodes}) => nodes.map((node) => [id, node.html.slice(0, 150), node.failureSummary]))))
    """
    return browser.execute_async_script(script)


def test_axe_finds_nothing(page, axe):
    page.set_script_timeout(60)
    assert find_violations(page, axe) == []  # all photos
    open_filters(page)
    wait(page, lambda: has_folder(page, "/photos"))
    find(page, "filter-in").click()
    assert find_violations(page, axe) == []  # the filters and the folders
    press(page, Keys.ESCAPE)
    search(page, "red")
    page.execute_script("document.querySelector('.pick input').click()")
    assert find_violations(page, axe) == []  # a search and a selection
    open_card(page, cards(page)[0])
    wait(page, lambda: text(page, "#viewer-caption") and text(page, "#why-words"))
    assert find_violations(page, axe) == []  # a photo
    press(page, Keys.ESCAPE)
    wait(page, lambda: not is_open(page))
    page.execute_script("document.activeElement.blur()")
    press(page, "?")
    wait(page, lambda: find(page, "help").is_displayed())
    assert find_violations(page, axe) == []


def test_a_search_that_finds_nothing_says_why(page):
    host = page.current_url.split("?")[0]
    for line, reason in (
        ("?q=red&near=Lima", "coordinates, so no place can be searched."),
        ("?camera=nikon", "No photo here was taken with a camera called 'nikon'."),
    ):
        page.get(host + line)
        wait(page, lambda said=reason: said in text(page, "#remarks"))
        assert text(page, "#status") == "No photos found."
        assert " (1)" in text(page, "#show-filters")
