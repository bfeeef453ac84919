"""The lab's certificate authority, made with the openssl command: a root, one leaf for every good site, two bad leaves."""
import pathlib
import subprocess

import zone


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def key(path):
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path))


def leaf(folder, name, alternatives):
    key(folder / f"{name}.key")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    openssl("req", "-new", "-key", str(folder / f"{name}.key"), "-subj", f"/CN={alternatives[0]}", "-out", str(request))
    extensions.write_text(
        "subjectAltName=" + ",".join(("IP:" if a[-1].isdigit() or ":" in a else "DNS:") + a for a in alternatives)
        + "\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", str(request), "-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key"), "-days", "7",
            "-CAcreateserial", "-extfile", str(extensions), "-out", str(folder / f"{name}.pem"))


def make(folder: pathlib.Path):
    key(folder / "ca.key")
    openssl("req", "-x509", "-new", "-key", str(folder / "ca.key"), "-subj", "/CN=Lab authority", "-days", "7",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-out", str(folder / "ca.pem"))
    addresses = sorted({a for addresses in zone.SITES.values() for a in addresses})
    leaf(folder, "good", list(zone.SITES) + list(zone.ALIASES) + addresses)
    leaf(folder, "wrongname", ["elsewhere.test"])
    key(folder / "selfsigned.key")
    openssl("req", "-x509", "-new", "-key", str(folder / "selfsigned.key"), "-subj", "/CN=selfsigned.test", "-days", "7",
            "-addext", "subjectAltName=DNS:selfsigned.test", "-out", str(folder / "selfsigned.pem"))
