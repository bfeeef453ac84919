"""Every word that the parser of policies knows is known to the rest: `fmt` has a place for each key, docs/policy-language.md says what it
means, and `explain` takes a question of each verb. (The prover and its brute-force comparison: tests/prover/keys_test.cc.)

Usage: keys_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
page = (root / "docs/policy-language.md").read_text()


def words(path, name):
    """The strings of a constant list."""
    found = re.search(rf"\b{name}(?:\[\])? = \{{(.*?)\}};", (root / path).read_text(), re.S)
    assert found, f"{path} has no {name}"
    return re.findall(r'"([^"]+)"', found.group(1))


def section(title):
    return re.search(rf"^##+ {title}\n(.*?)(?=^##+ |\Z)", page, re.M | re.S).group(1)


def written(text):
    """Words between backticks, alone or in an example of one."""
    return {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"[\w-]+", code)}


rule_keys = words("policy/rule_keys.cc", "kKeys")
assertion_keys = words("policy/rule_keys.cc", "kAssertionKeys")
file_keys = words("policy/document.cc", "kKeys")
verbs = words("policy/rule_text.cc", "kVerbs")
credential_keys = words("policy/credential_keys.cc", "kCredentialKeys")
proxy_keys = words("policy/credential_keys.cc", "kProxyKeys")

problems = []


def demand(known, of, where, text):
    problems.extend(f"`{word}`, {of}, is not in {where}" for word in known if word not in text)


keys = section("Keys")
demand([k for k in rule_keys if k not in ("allow", "deny")], "a key of rules", "docs/policy-language.md, Keys",
       set(re.findall(r"`([\w-]+)`", "\n".join(line.split("|")[1] for line in keys.splitlines() if line.startswith("| `")))))
demand(words("policy/rule_keys.cc", "kTargetKeys"), "a key of the long form", "docs/policy-language.md, A rule", written(section("A rule")))
demand(["never", "always"], "an assertion", "docs/policy-language.md, Assertions", written(section("Assertions")))
demand(file_keys + words("policy/document.cc", "kSettings"), "a key of the file", "docs/policy-language.md, The file", written(section("The file")))
demand(verbs + words("policy/rule_text.cc", "kKinds") + words("policy/rule_text.cc", "kGitVerbs"), "a verb", "docs/policy-language.md, A rule",
       written(section("A rule")))
credentials = written(section("Credentials"))
demand(credential_keys + words("policy/credential_keys.cc", "kSources") + words("policy/credential_keys.cc", "kUses"), "of credentials",
       "docs/policy-language.md, Credentials", credentials)
demand(proxy_keys, "a key of proxies", "docs/policy-language.md, Upstream proxies and pins", written(section("Upstream proxies and pins")))
demand(verbs, "a verb", "docs/policy-language.md, Asking", written(section("Asking")) | {"http"})
demand(rule_keys + assertion_keys, "a key of rules", "the order of policy/format.cc", words("policy/format.cc", "kRuleOrder"))
demand(file_keys, "a key of the file", "the order of policy/format.cc", words("policy/format.cc", "kTopOrder"))
questions = (root / "app/question.cc").read_text() + (root / "app/operation_question.cc").read_text()
problems += [f"`{verb}` is no question of app/question.cc" for verb in verbs if f'"{verb}"' not in questions]
print("\n".join(problems))
print(f"{len(rule_keys)} keys and {len(verbs)} verbs checked, {len(problems)} problems")
sys.exit(1 if problems else 0)
