#!/usr/bin/python3
"""Chromium, headless, no proxy set: it trusts the run's authority by its administrator's settings, and shows why a page is refused."""
import harness
import packages

READ = ["allow GET a.test/pub/**"]
SITE = "registry.corp.example"
PAGE = """<html><body><p id="allowed">-</p><p id="path">-</p><p id="host">-</p><script>
const say = (id, text) => { document.getElementById(id).textContent = text; };
fetch('fine.json').then(answer => answer.json()).then(text => say('allowed', text));
fetch('/other.json').then(answer => answer.text().then(text => say('path', answer.status + ' ' + text)));
fetch('https://b.test/pub/x').then(() => say('host', 'answered'), () => say('host', 'refused'));
</script></body></html>"""


class Chromium(harness.SluiceTest):
    def page(self, url, *more, rules=READ):
        """What the page is, once loaded. The workload makes no namespaces, so that Chromium's own sandbox is off."""
        return self.sluice(rules, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                           "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.work}/profile", *more,
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

    def test_a_page_gets_what_the_policy_allows_of_it_and_chromium_nothing_on_its_own(self):
        for name, text in (("index.html", PAGE), ("fine.json", '"fine"')):
            packages.write(self.lab.folder / "site/page" / name, text)
        result = self.page(f"https://{SITE}/page/", "--virtual-time-budget=2000", rules=[f"allow GET {SITE}/page/**"])
        self.assertIn('<p id="allowed">fine</p>', result.out, str(result))
        self.assertRegex(result.out, rf'<p id="path">403 .*GET {SITE}/other.json')
        self.assertIn('<p id="host">refused</p>', result.out)
        self.assertDenialLine(result, "GET", f"{SITE}/other.json", "chromium")
        self.assertDenialLine(result, "b.test", "chromium")
        # It asks whether there is a way out by UDP, as it would for HTTP/3, and loads all of this over TCP.
        self.assertTrue(any(r["layer"] == "udp" and r["target"]["port"] == 443 for r in result.audit if r.get("verdict") == "deny"))
        self.assertEqual({name for name in self.asked() if name != SITE}, set())
        self.assertEqual({entry.get("host") for entry in self.served()}, {SITE})


if __name__ == "__main__":
    harness.main()
