"""A real browser for tests of pages: Debian's chromium with its driver, through selenium."""

from __future__ import annotations

import importlib.util
import shutil
import time
from pathlib import Path
from typing import Any

from tests.interrupting import HANGS_SECONDS

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
)
HEIGHT = 900
CUT = """
const wide = innerWidth + 1, found = [];
if (document.documentElement.scrollWidth > wide) found.push(`page ${document.documentElement.scrollWidth}`);
const section = document.querySelector("section.shown");
for (const each of section.querySelectorAll("*")) {
  const svg = each.closest("svg"), box = each.getBoundingClientRect();
  if (svg && each.tagName !== "text" || !box.width) continue;
  if (each.closest(".hidden, thead") || each.matches(arguments[0])) continue;
  const edges = svg ? svg.getBoundingClientRect() : {left: 0, right: wide};
  if (box.right > Math.min(wide, edges.right + 1) || box.left < Math.max(-1, edges.left - 1))
    found.push(`${each.tagName} ${each.textContent.trim().slice(0, 40)} ${box.left} to ${box.right}`);
}
for (const each of section.querySelectorAll(".scroll, td, th"))
  if (each.clientWidth && each.scrollWidth > each.clientWidth + 1 && !each.matches(`thead *, ${arguments[0]}`))
    found.push(`${each.tagName} ${each.textContent.trim().slice(0, 40)} ${each.scrollWidth} of ${each.clientWidth}`);
return found
"""
"""Script that finds what is cut off in the visible section: beyond the page, beyond its chart, or wider than its box.
"""


def missing() -> str:
    """The reason why there is no browser to test with; empty if there is one."""
    if BROWSER is None or DRIVER is None:
        return "no chromium with chromedriver on this machine: apt-get install chromium chromium-driver"
    return "" if importlib.util.find_spec("selenium") else "no selenium: pip install 'software-ipu[test]'"


class Browser:
    """One window; `driver` is selenium's."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER or ""
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for flag in FLAGS:
            options.add_argument(flag)
        self.driver: Any = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_page_load_timeout(HANGS_SECONDS)

    def open(self, page: Path, section: str, width: int = 1400, theme: str = "light") -> None:
        """Loads a page in a window of this width and waits until its scripts have drawn a section."""
        self.resize(width)
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get("about:blank")
        self.driver.get(f"{page.as_uri()}#{section}")
        self.wait("document.documentElement.dataset.ready === 'yes'")
        self.go(section)

    def go(self, section: str) -> None:
        """Shows a section and waits until its charts are drawn."""
        self.run(f"location.hash = '{section}'")
        self.wait(f"document.querySelector('section.shown').id === '{section}'")
        self.wait(
            "[...document.querySelectorAll('section.shown figure[data-chart]')]"
            ".every(f => f.querySelectorAll('.drawing').length === 1 && f.querySelector('.vega-embed svg'))"
        )

    def resize(self, width: int) -> None:
        """Makes the window `width` CSS pixels wide."""
        metrics = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> None:
        """Waits until an expression of JavaScript is true."""
        end = time.monotonic() + HANGS_SECONDS
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"Never true: {condition}"
            time.sleep(0.02)

    def sections(self) -> list[str]:
        """The ids of the page's sections."""
        return list(self.run("return [...document.querySelectorAll('main > section')].map(each => each.id)"))

    def cut(self, scrolls: str = "") -> list[str]:
        """Elements that are cut off in the visible section, except those that match a selector.

        The chart of a pipeline scrolls sideways if its numbers need more than the width.
        """
        every = ["figure[data-chart=pipeline] *", "figure[data-chart=pipeline]", *filter(None, [scrolls])]
        return list(self.run(CUT, ", ".join(every)))

    def text(self, selector: str) -> str:
        """Text of an element as a reader sees it, in one line."""
        return " ".join(self.run("return document.querySelector(arguments[0]).innerText", selector).split())

    def hover(self, chart: str, across: float, down: float) -> str:
        """Text of the tip when the mouse is at these shares of a chart's plot; empty if there is none."""
        return self.tips(chart, [(across, down)])[0]

    def tips(self, chart: str, shares: list[tuple[float, float]]) -> list[str]:
        """Texts of the tip while the mouse is at each of these places of a chart."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        places = self.run(
            """const svg = document.querySelector(`figure[data-chart="${arguments[0]}"] svg`);
            svg.scrollIntoView({block: "center"});
            const plot = svg.querySelector(".background").getBoundingClientRect(), tip = document.querySelector(".tip");
            window.told = {};
            window.onmousemove = event => { told[[event.clientX, event.clientY]] = tip.hidden ? "" : tip.innerText; };
            return arguments[1].map(([x, y]) => [plot.x + x * plot.width, plot.y + y * plot.height].map(Math.trunc))""",
            *(chart, shares),
        )
        self.mouse = places[-1]
        actions = ActionBuilder(self.driver, duration=0)
        for place in places:
            actions.pointer_action.move_to_location(2, 2)
            actions.pointer_action.move_to_location(*place)
        actions.perform()
        told = self.run("window.onmousemove = null; return told")
        return ["; ".join(told[f"{x},{y}"].splitlines()) for x, y in places]

    def click(self, chart: str, across: float, down: float) -> None:
        """Clicks at these shares of a chart's plot."""
        self.hover(chart, across, down)
        self.click_at(*self.mouse)

    def click_at(self, x: float, y: float) -> None:
        """Clicks at a place of the window."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.driver, duration=0)
        actions.pointer_action.move_to_location(int(x), int(y)).click()
        actions.perform()

    def choose_ipu(self, number: int) -> None:
        """Chooses the IPU of a pipeline that the charts show."""
        self.run(
            "const chosen = document.querySelector('#ipu'); chosen.selectedIndex = arguments[0] + 1;"
            "chosen.dispatchEvent(new Event('change'))",
            number,
        )

    def complaints(self) -> list[str]:
        """Messages on the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def close(self) -> None:
        """Ends the browser."""
        self.driver.quit()
