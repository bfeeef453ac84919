"""Small packages and the registries that hold them, as files: for npm, pip and apt."""
import base64
import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import tarfile
import tempfile
import zipfile

REGISTRY = "https://registry.corp.example"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def npm_tarball(manifest):
    """The same octets each time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in (("package.json", json.dumps(manifest)), ("index.js", "module.exports = 'from the registry'\n")):
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content.encode()))
    return gzip.compress(buffer.getvalue(), mtime=0)


def npm_registry(site, base, manifests):
    """Metadata and tarballs. Returns the `packages` of a lock file."""
    locked = {}
    for manifest in manifests:
        name, version = manifest["name"], manifest["version"]
        tarball = npm_tarball(manifest)
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
        path = f"{base}/{name}/-/{name.split('/')[-1]}-{version}.tgz"
        write(site / path, tarball)
        dist = {"tarball": f"{REGISTRY}/{path}", "integrity": integrity}
        metadata = {"name": name, "dist-tags": {"latest": version}, "versions": {version: {**manifest, "dist": dist}}}
        write(site / base / name / "index.json", json.dumps(metadata))
        locked[f"node_modules/{name}"] = {"version": version, "resolved": dist["tarball"], "integrity": integrity,
                                          **({"hasInstallScript": True} if "scripts" in manifest else {})}
    return locked


def npm_project(folder, site, base, manifests):
    """A project whose lock file wants these packages, the registry that has them, and npm told to use it."""
    locked = npm_registry(site, base, manifests)
    root = {"name": "app", "version": "1.0.0", "dependencies": {m["name"]: m["version"] for m in manifests}}
    write(folder / "package.json", json.dumps(root))
    write(folder / "package-lock.json", json.dumps({"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": {"": root, **locked}}))
    host = REGISTRY.removeprefix("https://")
    write(folder / ".npmrc", f"registry={REGISTRY}/{base}/\ncache={folder}/.cache\nupdate-notifier=false\n//{host}/{base}/:_authToken=lab\n")


def python_index(site, name):
    """A wheel in packages/, and its page in simple/."""
    buffer, info = io.BytesIO(), f"{name}-1.0.dist-info"
    files = {f"{name}.py": "VALUE = 'from the index'\n", f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(buffer, "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))
    file = f"{name}-1.0-py3-none-any.whl"
    write(site / "packages" / file, buffer.getvalue())
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    write(site / "simple" / name / "index.html", f'<!DOCTYPE html><a href="/packages/{file}#sha256={digest}">{file}</a>\n')


def apt_repository(site, name):
    """One package in pool/, and its index in dists/."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        root.mkdir(mode=0o755)
        control = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: lab <lab@a.test>\nDescription: from the mirror\n"
        write(root / "DEBIAN/control", control)
        write(root / f"usr/share/{name}/hello", "from the mirror\n")
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(root), f"{folder}/x.deb"], check=True, capture_output=True)
        package = pathlib.Path(f"{folder}/x.deb").read_bytes()
    file = f"pool/main/{name}_1.0_all.deb"
    write(site / "debian" / file, package)
    index = f"{control}Filename: {file}\nSize: {len(package)}\nSHA256: {hashlib.sha256(package).hexdigest()}\n".encode()
    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    lines = []
    for suffix, content in (("", index), (".gz", gzip.compress(index))):
        path = f"main/binary-{architecture}/Packages{suffix}"
        write(site / "debian/dists/stable" / path, content)
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {path}\n")
    release = f"Suite: stable\nCodename: stable\nArchitectures: {architecture} all\nComponents: main\nSHA256:\n{''.join(lines)}"
    write(site / "debian/dists/stable/Release", release)
