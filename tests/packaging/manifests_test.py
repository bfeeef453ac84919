#!/usr/bin/python3
"""The manifests of packaging/ against their schemas, and against what the program and each other say.

Usage: manifests_test.py SOURCE_FOLDER [SLUICE_BINARY]
"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(sys.argv[1])
BINARY = sys.argv[2] if len(sys.argv) > 2 else None
PACKAGING = ROOT / "packaging"
SCHEMAS = json.loads((ROOT / "tests/packaging/schemas/manifests.json").read_text())


def documents(path):
    for number, document in enumerate(yaml.safe_load_all(path.read_text())):
        if document is not None:
            yield f"{path.relative_to(ROOT)}#{number}", document


def validate(document, kind):
    jsonschema.Draft7Validator({**SCHEMAS["kinds"][kind], "$defs": SCHEMAS["$defs"]}).validate(document)


def manifests():
    for path in sorted((PACKAGING / "kubernetes").rglob("*.yaml")):
        if path.name != "policy.yaml":
            yield from documents(path)


def pod_spec(document):
    spec = document.get("spec", {})
    template = spec.get("template") or spec.get("podTemplate")
    return template["spec"] if template else None


def sidecars():
    for where, document in manifests():
        spec = pod_spec(document)
        for container in (spec or {}).get("initContainers", []):
            if container["name"] == "sluice":
                yield where, document, spec, container


# What kustomize does with these files, of its reference: resources, components, patches by label, generated ConfigMaps, images, namespace. A
# strategic merge joins lists by the key of their kind.
MERGED_BY = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath", "ports": "containerPort"}


def merge(into, patch):
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif key in MERGED_BY and isinstance(into.get(key), list):
            for item in value:
                same = [old for old in into[key] if old[MERGED_BY[key]] == item[MERGED_BY[key]]]
                if same:
                    merge(same[0], item)
                else:
                    into[key].append(item)
        else:
            into[key] = value


def render(folder, outer=()):
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = {"apiVersion", "kind", "namespace", "resources", "components", "patches", "configMapGenerator", "images"}
    assert set(kustomization) <= known, f"this test renders no {set(kustomization) - known}"
    rendered = list(outer)
    for name in kustomization.get("resources", []):
        rendered += [d for _, d in documents(folder / name)]
    for name in kustomization.get("components", []):
        rendered = render((folder / name).resolve(), rendered)
    for patch in kustomization.get("patches", []):
        label, value = patch["target"]["labelSelector"].split("=")
        for document in rendered:
            if document["kind"] == patch["target"]["kind"] and document["metadata"].get("labels", {}).get(label) == value:
                changes = yaml.safe_load((folder / patch["path"]).read_text())
                changes.pop("metadata", None)
                merge(document, changes)
    for generated in kustomization.get("configMapGenerator", []):
        assert generated["options"]["disableNameSuffixHash"]
        rendered.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]},
                         "data": {name: (folder / name).read_text() for name in generated["files"]}})
    for image in kustomization.get("images", []):
        for document in rendered:
            spec = pod_spec(document) or {}
            for container in spec.get("containers", []) + spec.get("initContainers", []):
                if container["image"].split(":")[0] == image["name"]:
                    container["image"] = f"{image['newName']}:{image['newTag']}"
    if "namespace" in kustomization:
        for document in rendered:
            document["metadata"]["namespace"] = kustomization["namespace"]
    return rendered


def compose():
    return yaml.safe_load((PACKAGING / "compose/compose.yaml").read_text())


def podman_runs():
    """The words of each `podman run` that the page tells."""
    block = re.search(r"^```\n(.*?)^```", (PACKAGING / "podman/README.md").read_text(), re.M | re.S).group(1)
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines() if line.startswith("podman run ")]


def podman_sidecar():
    """What stands before the image, and the sidecar's own words."""
    words = next(run for run in podman_runs() if "sidecar" in run)
    at = words.index("sidecar")
    return words[:at], words[at:]


def comparable(value):
    """Without the order of lists."""
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    return sorted((comparable(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True)) if isinstance(value, list) else value


class Manifests(unittest.TestCase):
    def test_each_is_what_its_schema_says(self):
        count = 0
        for where, document in manifests():
            with self.subTest(where):
                validate(document, document["kind"])
                count += 1
        self.assertGreater(count, 10)
        validate(compose(), "Compose")

    def test_the_schema_refuses_what_is_wrong(self):
        good = next(d for _, d in manifests() if d["kind"] == "Deployment")
        for change in (lambda c: c.update(restartPolicy="Never"), lambda c: c["securityContext"].update(runAsUsr=1), lambda c: c.pop("name")):
            bad = json.loads(json.dumps(good))
            change(pod_spec(bad)["initContainers"][0])
            with self.assertRaises(jsonschema.ValidationError):
                validate(bad, "Deployment")

    def test_every_sidecar_is_native_and_has_net_admin_alone(self):
        found = list(sidecars())
        self.assertGreaterEqual(len(found), 3)
        for where, _, _, container in found:
            with self.subTest(where):
                self.assertEqual(container["restartPolicy"], "Always")
                security = container["securityContext"]
                self.assertEqual(security["capabilities"], {"drop": ["ALL"], "add": ["NET_ADMIN"]})
                self.assertNotIn("privileged", security)
                self.assertTrue(security["runAsNonRoot"] and security["readOnlyRootFilesystem"])

    def test_probes_ask_where_health_is_served(self):
        for where, _, _, container in sidecars():
            address = next(a.split("=", 1)[1] for a in container["args"] if a.startswith("--health="))
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                with self.subTest(f"{where} {probe}"):
                    self.assertEqual(container[probe]["exec"]["command"][:3], ["/usr/bin/sluice", "health", address])

    def test_workloads_keep_restricted(self):
        for where, document in manifests():
            for container in (pod_spec(document) or {}).get("containers", []):
                with self.subTest(f"{where} {container['name']}"):
                    security = container["securityContext"]
                    self.assertEqual(security["capabilities"], {"drop": ["ALL"]})
                    self.assertIs(security["allowPrivilegeEscalation"], False)
                    self.assertIs(security["runAsNonRoot"], True)
                    self.assertEqual(security["seccompProfile"]["type"], "RuntimeDefault")
                    ca = next(m for m in container["volumeMounts"] if m["name"] == "sluice-ca")
                    self.assertIs(ca["readOnly"], True)
                    self.assertNotIn("sluice-run", [m["name"] for m in container["volumeMounts"]], "the admin socket is not the workload's")

    def test_mounts_have_volumes(self):
        for where, document in manifests():
            spec = pod_spec(document)
            if spec is None or "volumes" not in spec:
                continue
            names = {v["name"] for v in spec["volumes"]}
            for container in spec.get("initContainers", []) + spec.get("containers", []):
                for mount in container.get("volumeMounts", []):
                    with self.subTest(f"{where} {mount['name']}"):
                        self.assertIn(mount["name"], names)

    def test_one_sidecar_is_written_everywhere(self):
        found = [json.dumps(container, sort_keys=True) for _, _, _, container in sidecars()]
        self.assertEqual(len(set(found)), 1)

    def test_compose_and_podman_start_it_as_the_manifests_do(self):
        """But for what only a cluster has: who the pod is, and an admin socket that nobody there is given."""
        pods = next(set(container["args"]) for _, _, _, container in sidecars())
        alone = {arg for arg in pods if not re.match("--(admin|name|label)=", arg)}
        self.assertEqual(set(compose()["services"]["sluice"]["command"]), alone)
        self.assertEqual(set(podman_sidecar()[1]), alone)

    def test_what_a_sidecar_keeps_outlives_its_container_and_is_its_own(self):
        services = compose()["services"]
        podman = [[words[i + 1] for i, word in enumerate(words) if word == "-v"] for words in podman_runs()]
        self.assertEqual(len(podman), 2)
        for where, own, others in (("compose", services["sluice"]["volumes"], [m for name, s in services.items() if name != "sluice" for m in s.get("volumes", [])]),
                                   ("podman", podman[0], podman[1])):
            with self.subTest(where):
                volume = next(mount.split(":")[0] for mount in own if mount.split(":")[1] == "/run/sluice")
                self.assertNotIn("/", volume, "a volume, whose owner is the image's")
                self.assertNotIn(volume, [mount.split(":")[0] for mount in others])
                self.assertTrue(others and all(mount.endswith(":ro") for mount in others), others)
        self.assertEqual({mount.split(":")[0] for mount in services["sluice"]["volumes"] if not mount.startswith(".")}, set(compose()["volumes"]))

    def test_the_network_outlives_the_sidecar(self):
        services = compose()["services"]
        self.assertEqual({name: s.get("network_mode") for name, s in services.items()}, {"network": None, "sluice": "service:network", "workload": "service:network"})
        self.assertEqual(services["workload"]["depends_on"], {"sluice": {"condition": "service_healthy"}})
        self.assertEqual(services["sluice"]["restart"], "unless-stopped")
        for name in ("network", "workload"):
            self.assertEqual((services[name]["cap_drop"], services[name].get("cap_add")), (["ALL"], None), name)
        flags = podman_sidecar()[0]
        self.assertTrue({"--pod", "--restart=always", "--cap-drop=all", "--cap-add=net_admin", "--read-only"} <= set(flags), flags)

    def test_the_network_policy_selects_what_is_fenced(self):
        policies = [d for _, d in manifests() if d["kind"] == "NetworkPolicy"]
        self.assertGreaterEqual(len(policies), 2)
        for policy in policies:
            self.assertEqual(policy["spec"]["podSelector"]["matchLabels"], {"sluice.dev/fenced": "true"})
            self.assertEqual(policy["spec"]["policyTypes"], ["Ingress", "Egress"])
            for rule in policy["spec"]["egress"]:
                self.assertTrue(rule["to"] and rule["ports"], "an empty rule would let everything out")

    def test_one_policy_is_written_everywhere(self):
        text = (PACKAGING / "kubernetes/example/policy.yaml").read_text()
        self.assertEqual((PACKAGING / "compose/policy.yaml").read_text(), text)
        for where, document in manifests():
            if document["kind"] == "ConfigMap":
                self.assertEqual(document["data"]["policy.yaml"], text, where)

    def test_kustomize_renders_what_is_valid(self):
        rendered = render(PACKAGING / "kubernetes/example")
        for document in rendered:
            validate(document, document["kind"])
            self.assertEqual(document["metadata"]["namespace"], "fenced")
        self.assertEqual(sorted({d["kind"] for d in rendered}), ["ConfigMap", "Deployment", "NetworkPolicy"])
        deployment = next(d for d in rendered if d["kind"] == "Deployment")
        sluice = pod_spec(deployment)["initContainers"]
        self.assertEqual([(c["name"], c["image"]) for c in sluice], [("sluice", "registry.example/sluice:0.1.0")])
        # Debian 12's kubectl is older than components; where another one is, it must say the same.
        if shutil.which("kubectl"):
            done = subprocess.run(["kubectl", "kustomize", PACKAGING / "kubernetes/example"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(comparable(rendered), comparable([d for d in yaml.safe_load_all(done.stdout) if d]))


@unittest.skipIf(BINARY is None, "no binary was given")
class AgainstTheProgram(unittest.TestCase):
    def help(self, *command):
        return subprocess.run([BINARY, *command, "--help"], capture_output=True, text=True, check=True).stdout

    def test_every_flag_is_one(self):
        listed = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", self.help("sidecar")))
        used = {a.split("=", 1)[0] for _, _, _, c in sidecars() for a in c["args"][1:]}
        used |= {a.split("=", 1)[0] for a in compose()["services"]["sluice"]["command"][1:] + podman_sidecar()[1][1:]}
        unit = (PACKAGING / "systemd/sluice-sidecar@.service").read_text()
        used |= set(re.findall(r"(?<=\s)--[a-z][a-z-]+", re.search(r"^ExecStart=(.*)$", unit, re.M).group(1)))
        self.assertEqual(used - listed, set())
        self.assertGreater(len(used), 4)

    def test_the_policy_loads(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "policy.yaml"
            path.write_text((PACKAGING / "kubernetes/example/policy.yaml").read_text())
            done = subprocess.run([BINARY, "explain", path, "GET https://api.github.com/repos/a/b"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            done = subprocess.run([BINARY, "explain", path, "POST https://api.github.com/repos/a/b"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
