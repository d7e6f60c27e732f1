"""What a person does at the pages, in headless Chromium. Every step leaves a picture."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions as ec
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_S = 90


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

    def find(self, xpath: str) -> WebElement:
        return WebDriverWait(self.driver, PATIENCE_S).until(ec.presence_of_element_located((By.XPATH, xpath)))

    def click(self, xpath: str) -> None:
        WebDriverWait(self.driver, PATIENCE_S).until(ec.element_to_be_clickable((By.XPATH, xpath))).click()

    def text(self) -> str:
        """Give the page's text; asked of the page itself, which redraws its elements all the time."""
        return str(self.driver.execute_script("return document.body ? document.body.innerText : ''"))

    def wait_for_text(self, text: str) -> str:
        WebDriverWait(self.driver, PATIENCE_S).until(lambda _: text in self.text())
        return self.text()

    def log_in(self, user: str, password: str) -> None:
        self.driver.get(self.address)
        self.find("//input[@name='username']").send_keys(user)
        self.find("//input[@name='password']").send_keys(password)
        self.click("//button[@type='submit']")
        self.wait_for_text("Dags")

    def trigger(self, dag_id: str, **values: str) -> None:
        """Fill in the trigger form and send it."""
        self._open_form(dag_id)
        for name, value in values.items():
            self.find(f"//*[@name='element_{name}']").send_keys(value)
        self.picture(f"{dag_id}-form")
        self.click("//*[@role='dialog']//button[normalize-space()='Trigger']")
        WebDriverWait(self.driver, PATIENCE_S).until(
            ec.invisibility_of_element_located((By.XPATH, "//*[@role='dialog']//form"))
        )

    def form_is_ready(self, dag_id: str) -> bool:
        """Say whether the form can be sent without changing anything."""
        self._open_form(dag_id)
        button = self.find("//*[@role='dialog']//button[normalize-space()='Trigger']")
        WebDriverWait(self.driver, PATIENCE_S).until(lambda _: "Cluster" in self.text())
        self.picture(f"{dag_id}-form")
        return button.is_enabled()

    def _open_form(self, dag_id: str) -> None:
        self.driver.get(f"{self.address}/dags/{dag_id}")
        self.click("//button[normalize-space()='Trigger' or @aria-label='Trigger' or contains(., 'Trigger')]")
        self.find("//*[@role='dialog']")

    def report_of(self, dag_id: str, run_id: str) -> str:
        """Follow the tab Report of a DAG run; give the report's text."""
        self.driver.get(f"{self.address}/dags/{dag_id}/runs/{quote(run_id)}")
        self.click("//a[contains(normalize-space(), 'Report')]")
        frame = self.find("//iframe[contains(@src, 'plumbline/report')]")
        self.driver.switch_to.frame(frame)
        text = WebDriverWait(self.driver, PATIENCE_S).until(lambda _: self.text().strip())
        self.driver.switch_to.default_content()
        self.picture("report")
        return str(text)

    def mlflow_run_of(self, dag_id: str, run_id: str) -> tuple[str, str]:
        """Follow the tab MLflow run of a DAG run; give the address and the text of MLflow's own page in it."""
        self.driver.get(f"{self.address}/dags/{dag_id}/runs/{quote(run_id)}")
        link = self.find("//a[contains(normalize-space(), 'MLflow run')]")
        self.picture("dag-run")
        link.click()
        self.driver.switch_to.frame(self.find("//iframe[contains(@src, 'plumbline/mlflow')]"))
        address = str(self.find("//p/a").get_attribute("href"))
        self.driver.switch_to.frame(self.find("//iframe"))
        WebDriverWait(self.driver, PATIENCE_S).until(lambda _: "Metrics" in self.text())
        text = self.text()
        self.driver.switch_to.default_content()
        self.picture("mlflow-run")
        return address, text
