"""The lab's certificate authority, made with the openssl command: a root, one leaf for every good site, and bad ones."""
import datetime
import pathlib
import subprocess

import zone


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


CURVE = ("-pkeyopt", "ec_paramgen_curve:P-256")


def key(path):
    openssl("genpkey", "-algorithm", "EC", *CURVE, "-out", str(path))


def asking(path, *kind):
    """Arguments of openssl req that make a key, too."""
    return ("-new", "-newkey", *(kind or ("ec", *CURVE)), "-nodes", "-keyout", str(path))


def day(offset):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=offset)).strftime("%Y%m%d%H%M%SZ")


def leaf(folder, name, alternatives, days=(0, 7), digest="sha256", kind=(), usage="serverAuth"):
    request, extensions, settings = folder / f"{name}.csr", folder / f"{name}.ext", folder / "ca.conf"
    openssl("req", *asking(folder / f"{name}.key", *kind), "-subj", f"/CN={alternatives[0]}", "-out", str(request))
    extensions.write_text(
        "subjectAltName=" + ",".join(("IP:" if a[-1].isdigit() or ":" in a else "DNS:") + a for a in alternatives)
        + f"\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage={usage}\n")
    settings.write_text(f"[ca]\ndefault_ca=lab\n[lab]\ndatabase={folder}/issued\nnew_certs_dir={folder}\nunique_subject=no\nrand_serial=yes\npolicy=any\n[any]\ncommonName=supplied\n")
    (folder / "issued").touch()
    openssl("ca", "-batch", "-notext", "-config", str(settings), "-in", str(request), "-cert", str(folder / "ca.pem"),
            "-keyfile", str(folder / "ca.key"), "-startdate", day(days[0]), "-enddate", day(days[1]), "-md", digest,
            "-extfile", str(extensions), "-out", str(folder / f"{name}.pem"))


def make(folder: pathlib.Path):
    openssl("req", "-x509", *asking(folder / "ca.key"), "-subj", "/CN=Lab authority", "-days", "7",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-out", str(folder / "ca.pem"))
    addresses = sorted({a for addresses in zone.SITES.values() for a in addresses})
    leaf(folder, "good", list(zone.SITES) + list(zone.ALIASES) + addresses)
    leaf(folder, "wrongname", ["elsewhere.test"])
    leaf(folder, "expired", ["expired.test"], days=(-9, -2))
    leaf(folder, "early", ["early.test"], days=(2, 9))
    leaf(folder, "sha1", ["sha1.test"], digest="sha1")
    leaf(folder, "rsa1024", ["rsa1024.test"], kind=("rsa:1024",))
    openssl("req", "-x509", *asking(folder / "selfsigned.key"), "-subj", "/CN=selfsigned.test", "-days", "7",
            "-addext", "subjectAltName=DNS:selfsigned.test", "-out", str(folder / "selfsigned.pem"))
