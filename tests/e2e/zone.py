"""What the lab's internet holds: names, addresses and records. Data only."""

RESOLVER, RESOLVER_V6 = "9.9.9.9", "2620:fe::9"
# The link between the two namespaces. Public addresses, so that "the host's own address" is not refused for another reason.
HOST_V4, GATEWAY_V4 = "93.184.216.34", "93.184.216.1"
HOST_V6, GATEWAY_V6 = "2606:2800:220:1::34", "2606:2800:220:1::1"

# name -> addresses the internet answers at
SITES = {
    "github.com": ["140.82.121.4"],
    "api.github.com": ["140.82.121.6"],
    "a.test": ["151.101.1.10", "2a04:4e42::10"],
    "b.test": ["151.101.1.20"],
    "v6only.test": ["2a04:4e42::30"],
    "telemetry.example": ["151.101.1.40"],
    "db.test": ["151.101.1.50"],
    "slow.test": ["151.101.1.51"],
    "pinned.test": ["151.101.1.60"],
    "shared.test": ["151.101.1.10"],
    "x.wild.test": ["151.101.1.65"],
    "y.x.wild.test": ["151.101.1.65"],
    "registry.corp.example": ["151.101.1.80"],
    "proxy.corp.example": ["151.101.1.90"],
}
# Serve the files below the lab's site/, and take whatever is sent to them.
FILE_SITES = ("registry.corp.example",)
# Presents a certificate that must not be accepted: for another name, of no authority in the bundle, out of its time, or weak.
BAD_CERTIFICATES = {"wrongname.test": ["151.101.1.70"], "selfsigned.test": ["151.101.1.71"], "expired.test": ["151.101.1.72"],
                    "early.test": ["151.101.1.73"], "sha1.test": ["151.101.1.74"], "rsa1024.test": ["151.101.1.75"]}
# Names whose answers must not be dialled.
TRAPS = {
    "rebind.test": ["127.0.0.1"],
    "rebind6.test": ["::1"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "metadata.test": ["169.254.169.254"],
    "private.test": ["10.0.0.5"],
    "self.test": [HOST_V4],
}
# One family leads nowhere, without a word.
HALF = {"half.test": ["2a04:4e42::99", "151.101.1.10"]}
# Where the proxies between the host and the internet listen.
PROXY = "151.101.1.90"
# Some of its addresses may be dialled.
MIXED = {"mixed.test": ["10.0.0.5", "::1", "151.101.1.10"]}
# Resolves, but nothing answers there: no such address on the lab's internet.
SILENT = {"blackhole.test": ["151.101.1.99"]}
# As many addresses as one answer is read of; nothing listens there.
MANY = {f"m{n}.many.test": [f"151.102.{n}.{i}" for i in range(1, 65)] for n in range(100)}
ALIASES = {"alias.test": "a.test"}

PORT_HTTP, PORT_HTTPS, PORT_HTTPS_ALT = 80, 443, 8443
PORT_TCP_ECHO, PORT_TLS_ECHO, PORT_UDP_ECHO = 5432, 9443, 7007
PORT_OTHER_RESOLVERS = 853  # DNS over TLS and QUIC: echoes too
PORT_NOBODY = 5999
# Says the name of the place, then echoes: at these alone.
PORT_GREETING = 5433
GREETING = ("a.test", "b.test", "slow.test")

ADDRESSES = {}
for table in (SITES, BAD_CERTIFICATES, TRAPS, HALF, MIXED, SILENT, MANY):
    ADDRESSES.update(table)

# A metadata service and a private one answer too: reachable, so that only the policy keeps the workload from them.
INSIDE = ["169.254.169.254", "10.0.0.5"]
LOCAL_ADDRESSES = sorted({a for t in (SITES, BAD_CERTIFICATES) for addresses in t.values() for a in addresses} | {RESOLVER, RESOLVER_V6, "8.8.8.8", *INSIDE})
