#!/usr/bin/python3
"""Chromium, headless, no proxy set: it trusts the run's authority by its administrator's settings, and shows why a page is refused."""
import os
import pathlib
import subprocess

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
    def page(self, url, *more, rules=READ, sandbox=("--no-sandbox",), flags=()):
        """What the page is, once loaded. By itself the workload makes no namespaces, so that Chromium's own sandbox is off."""
        return self.sluice(rules, "chromium", "--headless=new", *sandbox, "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                           "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.work}/profile", *more,
                           "--dump-dom", url, timeout=90, flags=flags)

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

    def test_with_leave_for_namespaces_its_own_sandbox_holds_beside_ours(self):
        if harness.MODE != "rootless":
            return  # as root it starts without its sandbox or not at all
        leave = {"sandbox": (), "flags": ["--allow-user-namespaces"]}
        result = self.page("https://a.test/pub/x", **leave)
        self.assertExit(result, 0)
        self.assertIn("hello from the lab", result.out)
        refused = self.page("https://a.test/other", **leave)
        self.assertIn("GET a.test/other", refused.out)
        self.assertDenialLine(refused, "GET", "a.test/other", "chromium")
        self.assertEqual({entry["target"] for entry in self.served()}, {"/pub/x"})
        self.assertNotEqual(self.page("https://a.test/pub/x", sandbox=()).code, 0, "without the leave it does not start")

    def test_its_renderers_are_in_namespaces_of_their_own(self):
        if harness.MODE != "rootless":
            return
        with self.running(READ, "chromium", "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={self.work}/profile",
                          "--remote-debugging-port=9222", "https://a.test/pub/x", flags=["--allow-user-namespaces"], stderr=subprocess.DEVNULL) as process:
            self.assertEventually(lambda: self.renderers(process.pid), "a renderer runs", 60)
            for pid in self.renderers(process.pid):
                for kind in ("user", "pid", "net"):
                    self.assertNotEqual(os.readlink(f"/proc/{pid}/ns/{kind}"), os.readlink(f"/proc/{self.browser(process.pid)}/ns/{kind}"), kind)

    @staticmethod
    def below(pid):
        """Every process that descends from it, with its command line."""
        children = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append((int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")))
            except (OSError, IndexError):
                continue
        found, left = {}, [pid]
        while left:
            for child, words in children.get(left.pop(), []):
                found[child] = words
                left.append(child)
        return found

    def renderers(self, pid):
        return [child for child, words in self.below(pid).items() if any(b"--type=renderer" in word for word in words)]

    def browser(self, pid):
        return next(child for child, words in self.below(pid).items() if words[0].endswith(b"chromium") and not any(b"--type=" in word for word in words))

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
