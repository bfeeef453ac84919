#!/usr/bin/python3
"""Chromium, headless, no proxy set: it trusts the run's authority by its administrator's settings, and shows why a page is refused."""
import harness

READ = ["allow GET a.test/pub/**"]


class Chromium(harness.SluiceTest):
    def page(self, url):
        """What the page is, once loaded. The workload makes no namespaces, so that Chromium's own sandbox is off."""
        return self.sluice(READ, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                           "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.work}/profile",
                           "--dump-dom", url, timeout=90)

    def test_an_allowed_page_is_shown(self):
        result = self.page("https://a.test/pub/x")
        self.assertExit(result, 0)
        self.assertIn("hello from the lab", result.out)
        self.assertRegex(result.err, r"authority trusted by .*\bchromium\b")

    def test_a_refused_page_shows_the_missing_rule(self):
        result = self.page("https://a.test/other")
        self.assertIn("GET a.test/other", result.out)
        self.assertNotIn("hello from the lab", result.out)
        self.assertDenialLine(result, "GET", "a.test/other", "chromium")

    def test_what_it_calls_on_its_own_is_refused(self):
        result = self.page("https://a.test/pub/x")
        self.assertEqual({name for name in self.asked() if not name.endswith(".test")}, set())
        self.assertEqual({entry.get("host") for entry in self.served()}, {"a.test"}, str(result))


if __name__ == "__main__":
    harness.main()
