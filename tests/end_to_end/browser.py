"""What a person does at the pages, in headless Chromium. Every step leaves a picture."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from selenium.common import exceptions
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions as ec
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_S = 180
NOT_YET = (
    exceptions.NoSuchElementException, exceptions.StaleElementReferenceException,
    exceptions.ElementClickInterceptedException, exceptions.ElementNotInteractableException,
)  # fmt: skip
"""What an element of a page that is still being drawn, or drawn anew, answers."""


class Browser:
    """One window on Airflow's pages."""

    def __init__(self, address: str, pictures: Path) -> None:
        self.address, self.pictures = address, pictures
        pictures.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Browser:
        options = ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1500,1100"):
            options.add_argument(f"--{argument}")
        self.driver = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
        return self

    def __exit__(self, kind: object, *details: object) -> None:
        if kind is not None:
            self.picture("failed")
        self.driver.quit()

    def picture(self, name: str) -> None:
        self.driver.save_screenshot(str(self.pictures / f"{name}.png"))

    def until(self, condition: Callable[[Any], Any]) -> Any:
        """Wait until something is true of the page; give it."""
        return WebDriverWait(self.driver, PATIENCE_S, ignored_exceptions=NOT_YET).until(condition)

    def find(self, xpath: str) -> WebElement:
        return self.until(ec.presence_of_element_located((By.XPATH, xpath)))

    def ready(self, xpath: str) -> WebElement:
        """Find an element that is shown and not disabled in the page as it is now, or raise one of NOT_YET."""
        element = self.driver.find_element(By.XPATH, xpath)
        if not (element.is_displayed() and element.is_enabled()):
            raise exceptions.ElementNotInteractableException(xpath)
        return element

    def click(self, xpath: str) -> None:
        self.until(lambda _: self.ready(xpath).click() is None)

    def fill_in(self, xpath: str, text: str) -> None:
        self.until(lambda _: self.ready(xpath).send_keys(text) is None)

    def enter(self, xpath: str) -> None:
        """Go into a frame."""
        self.until(ec.frame_to_be_available_and_switch_to_it((By.XPATH, xpath)))

    def text(self) -> str:
        """Give the page's text; asked of the page itself, which redraws its elements all the time."""
        return str(self.driver.execute_script("return document.body ? document.body.innerText : ''"))

    def wait_for_text(self, text: str) -> str:
        return str(self.until(lambda _: text in (found := self.text()) and found))

    def log_in(self, user: str, password: str) -> None:
        self.driver.get(self.address)
        self.fill_in("//input[@name='username']", user)
        self.fill_in("//input[@name='password']", password)
        self.click("//button[@type='submit']")
        self.wait_for_text("Dags")

    def trigger(self, dag_id: str, **values: str) -> None:
        """Fill in the trigger form and send it."""
        self._open_form(dag_id)
        for name, value in values.items():
            self.fill_in(f"//*[@name='element_{name}']", value)
        self.picture(f"{dag_id}-form")
        self.click("//*[@role='dialog']//button[normalize-space()='Trigger']")
        self.until(ec.invisibility_of_element_located((By.XPATH, "//*[@role='dialog']//form")))

    def form_is_ready(self, dag_id: str) -> bool:
        """Say whether the form can be sent without changing anything."""
        self._open_form(dag_id)
        self.wait_for_text("Cluster")
        self.picture(f"{dag_id}-form")
        try:
            self.until(lambda _: self.ready("//*[@role='dialog']//button[normalize-space()='Trigger']"))
        except exceptions.TimeoutException:
            return False
        return True

    def _open_form(self, dag_id: str) -> None:
        self.driver.get(f"{self.address}/dags/{dag_id}")
        self.click("//button[normalize-space()='Trigger' or @aria-label='Trigger' or contains(., 'Trigger')]")
        self.find("//*[@role='dialog']")

    def report_of(self, dag_id: str, run_id: str, title: str) -> str:
        """Follow the tab Report of a DAG run; give the report's text, once its title is there."""
        self.driver.get(f"{self.address}/dags/{dag_id}/runs/{quote(run_id)}")
        self.click("//a[contains(normalize-space(), 'Report')]")
        self.enter("//iframe[contains(@src, 'plumbline/report')]")
        text = self.wait_for_text(title)
        self.driver.switch_to.default_content()
        self.picture("report")
        return text

    def mlflow_run_of(self, dag_id: str, run_id: str, title: str) -> tuple[str, str]:
        """Follow the tab MLflow run of a DAG run; give address and text of MLflow's own page, once its title shows.

        MLflow draws the page before it knows the run.
        """
        link = "//a[contains(normalize-space(), 'MLflow run')]"
        self.driver.get(f"{self.address}/dags/{dag_id}/runs/{quote(run_id)}")
        self.find(link)
        self.picture("dag-run")
        self.click(link)
        self.enter("//iframe[contains(@src, 'plumbline/mlflow')]")
        address = str(self.find("//p/a").get_attribute("href"))
        self.enter("//iframe")
        self.wait_for_text("Metrics")
        text = self.wait_for_text(title)
        self.driver.switch_to.default_content()
        self.picture("mlflow-run")
        return address, text
