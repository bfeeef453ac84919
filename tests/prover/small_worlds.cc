// The worlds themselves: which words each draws from, and its tuples.

#include "tests/prover/small_worlds.h"

#include <set>
#include <string>
#include <vector>

#include "policy/glob.h"
#include "policy/target.h"

namespace sluice::prover {
namespace {

using policy::Glob;

constexpr std::chrono::hours kDay{24};

// Canonical texts up to a length over an alphabet, one for each set of patterns they match.
void AddTexts(const std::vector<Glob>& globs, const std::string& alphabet, size_t longest, std::vector<std::string>* out) {
  std::set<std::vector<bool>> seen;
  std::vector<std::string> layer{"/"};
  for (size_t length = 1; length <= longest; ++length) {
    std::vector<std::string> next;
    for (const std::string& text : layer) {
      const auto target = policy::CanonicalizeTarget(text);
      if (target && target->path == text) {
        std::vector<bool> bits;
        for (const Glob& glob : globs) bits.push_back(glob.Matches(text));
        for (const std::string& reading : target->wide_readings)
          for (const Glob& glob : globs) bits.push_back(glob.Matches(reading));
        bits.push_back(target->has_encoded_slash);
        bits.push_back(target->has_path_params);
        bits.push_back(target->has_hidden_dots);
        if (seen.insert(bits).second) out->push_back(text);
      }
      for (const char c : alphabet) next.push_back(text + (c == '%' ? std::string("%2F") : std::string(1, c)));
    }
    layer = std::move(next);
  }
}

World Hosts() {
  World w{.name = "hosts",
          .pairs = 33'500,
          .verbs = {"GET", "GET,POST", "http", "tls", "tcp", "dns", "udp", "http://GET"},
          .hosts = {"a.t", "b.t", "*.a.t", "**.a.t", "**", "x*.t", "*.t", "x.a.t"}};
  w.ports = {"", "443", "80"};
  w.audit_in = 12;
  w.types = true;
  w.names = {"a.t", "b.t", "x.a.t", "y.a.t", "y.x.a.t", "xz.t", "xn--q.t", "c.t", "other", ""};
  w.port_list = {443, 80, 8443};
  w.addresses = {"1.1.1.1", "2600::1"};
  w.methods = {"GET", "POST", "PUT"};
  w.both_schemes = true;
  return w;
}

World Paths() {
  World w{.name = "paths", .pairs = 22'500, .verbs = {"GET", "GET,POST", "http", "HEAD"}, .hosts = {"a.t"}};
  w.paths = {"", "/v/**", "/v", "/*", "/**/b", "/v*/a", "/v/*", "/a/**", "/**/v/**", "/*/b", "/**/a*", "/**/*b*/**"};
  w.names = {"a.t"};
  w.methods = {"GET", "HEAD", "POST", "PUT"};
  w.targets.clear();
  std::vector<Glob> globs;
  for (const std::string& path : w.paths)
    if (!path.empty()) globs.push_back(Value(Glob::Path(path)));
  AddTexts(globs, "/vab", 9, &w.targets);
  return w;
}

World Readings() {
  World w{.name = "readings", .pairs = 33'000, .verbs = {"GET"}, .hosts = {"a.t"}};
  w.paths = {"", "/v/**", "/v", "/*", "/**/v", "/a/v", "/a/*"};
  w.opening_paths = true;
  w.names = {"a.t"};
  w.targets.clear();
  std::vector<Glob> globs;
  for (const std::string& path : w.paths)
    if (!path.empty()) globs.push_back(Value(Glob::Path(path)));
  AddTexts(globs, "/va%;", 7, &w.targets);
  return w;
}

World Queries() {
  World w{.name = "queries", .pairs = 1'000, .verbs = {"GET", "http"}, .hosts = {"a.t"}};
  w.paths = {"", "/v"};
  w.query = {"", "k=a*", "k=b", "k=a*|b", "j=*", "k=*", "k=ab"};
  w.query_keys = {"", "", "k", "k,j"};
  w.headers = {"", "", "x-a=a*", "x-a=b", "x_a=b"};
  w.names = {"a.t"};
  w.targets.clear();
  const std::vector<std::string> values{
      "k=a",      "k=ab",    "k=b",          "k=c",          "k",           "k=a&k=ab",     "k=a&k=b",  "k=a&k=c",
      "k=ab&k=b", "k=b&k=c", "k=a&k=ab&k=b", "k=a&k=ab&k=c", "k=a&k=b&k=c", "k=ab&k=b&k=c", "k=ab&k=c", "k=a&k=ab&k=b&k=c"};
  for (const std::string path : {"/", "/v"}) {
    w.targets.push_back(path);
    for (const std::string extra : {"", "&j=1", "&z=1", "&j=1&z"})
      for (const std::string& value : values) w.targets.push_back(path + "?" + value + extra);
    for (const std::string alone : {"j=1", "z=1", "j=1&z"}) w.targets.push_back(path + "?" + alone);
    w.targets.push_back(path + "?k=a;k=c");
    w.targets.push_back(path + "?");
  }
  w.methods = {"GET", "POST"};
  w.header_sets = {{}, {{"x-a", "a"}}, {{"x-a", "b"}}, {{"x-a", "c"}}, {{"x_a", "a"}}, {{"x_a", "b"}}};
  for (const char* dash : {"a", "b", "c"})
    for (const char* underscore : {"a", "b", "c"}) w.header_sets.push_back({{"x-a", dash}, {"x_a", underscore}});
  w.header_sets.push_back({{"x-a", "a"}, {"x-a", "b"}});
  w.header_sets.push_back({{"x-a", "a"}, {"x-a", "c"}});
  w.header_sets.push_back({{"x_a", "c"}});
  return w;
}

World Addresses() {
  World w{.name = "addresses",
          .pairs = 2'500,
          .verbs = {"GET", "tls", "tcp", "udp", "dns"},
          .hosts = {"a.t", "**", "10.0.0.0/8", "10.1.2.3", "0.0.0.0/0"}};
  w.ports = {"443", "80-443", "", "5432"};
  w.ip = {"", "", "10.0.0.0/8", "10.0.0.0/9", "10.1.0.0/16", "1.1.1.1", "0.0.0.0/0", "169.254.169.254", "fd00::/8", "::/0"};
  w.types = true;
  w.audit_in = 10;
  w.names = {"a.t", "b.t", ""};
  w.addresses = {"1.1.1.1",         "1.1.1.2",     "10.0.0.1", "10.1.0.1", "10.1.2.3", "10.200.0.1",
                 "169.254.169.254", "192.168.0.1", "fd00::1",  "fe80::1",  "2600::1",  "2002:a00:1::"};
  w.port_list = {443, 80, 81, 5432, 1};
  return w;
}

World Processes() {
  World w{.name = "processes", .pairs = 2'500, .verbs = {"GET", "tls", "tcp", "udp", "dns", "unix"}, .hosts = {"a.t", "*.t"}};
  const std::string digest = "sha256:" + std::string(64, 'a');
  w.by = {"", "", "/u/c", "/u/*", "/u/**", digest, "/*/c"};
  w.under = {"", "", "", "/u/s", "/u/*"};
  w.until = {0, 0, 0, 5, 9};
  w.names = {"a.t", "b.t"};
  w.days = {0, 5, 9};
  w.sockets = {"/r/a", "/r/b", "/r/b/c", "/x"};
  w.paths = {"/r/a", "/r/*", "/r/**"};
  using Kind = WitnessProcess::Kind;
  std::array<uint8_t, 32> named{};
  named.fill(0xaa);
  const std::vector<std::vector<WitnessAncestor>> lineages{{}, {{"/u/s"}}, {{"/u/x"}}, {{"/u/s"}, {"/u/x"}}};
  w.processes = {};
  for (const auto& sha : std::vector<std::optional<std::array<uint8_t, 32>>>{std::nullopt, named, std::array<uint8_t, 32>{}}) {
    for (const char* exe : {"/u/c", "/u/s", "/u/x", "/u/x/y", "/v/c", "/z"})
      for (const auto& ancestors : lineages) w.processes.push_back({Kind::kNamed, exe, sha, ancestors});
    for (const auto& ancestors : lineages) w.processes.push_back({Kind::kUntrusted, "/m", sha, ancestors});
  }
  w.processes.push_back({Kind::kUnknown});
  return w;
}

World Git() {
  World w{.name = "git",
          .pairs = 500,
          .verbs = {"GET", "GET,POST", "http", "git fetch-pack", "git receive-pack", "tls"},
          .hosts = {"a.t"}};
  w.paths = {"", "/o/*", "/o/r", "/**", "/o/r/**", "/o/r.git", "/o/r/info/*"};
  w.headers = {"", "", "", "content-type=application/x-git-receive-pack-request"};
  w.query = {"", "", "service=git-upload-pack", "service=git-*"};
  w.query_keys = {"", "", "", "service"};
  w.names = {"a.t"};
  w.methods = {"GET", "POST", "PUT"};
  w.targets = {"/git-upload-pack", "/info/refs", "/x/git-receive-pack"};
  for (const std::string path : {"/", "/o/r", "/o/", "/o/r.git", "/o/r/", "/o/r/info/", "/o/r/info/x", "/z"})
    for (const std::string query :
         {"", "?service=git-upload-pack", "?service=git-receive-pack", "?service=git-x", "?service=x", "?z",
          "?service=git-upload-pack&z", "?service=git-receive-pack&z", "?service=git-x&z", "?service=x&z",
          "?service=git-upload-pack&service=git-receive-pack", "?service=git-upload-pack&service=x"})
      w.targets.push_back(path + query);
  for (const std::string repo :
       {"/o/r", "/o/R.Git", "/o/r/.git", "/o/r.git.git", "/o/x", "/x", "/o/r/s", "/o/r.git/s", "/o/r/info/x"})
    for (const std::string end : {"/info/refs",
                                  "/info/refs?service=git-upload-pack",
                                  "/info/refs?service=git-receive-pack",
                                  "/info/refs?service=git-x",
                                  "/info/refs?service=git-upload-pack&",
                                  "/info/refs?service=git-receive-pack&",
                                  "/info/refs?service=x",
                                  "/info/refs?z",
                                  "/info/refs?service=git-upload-pack&z",
                                  "/info/refs?service=git-receive-pack&z",
                                  "/info/refs?service=git-upload-pack&service=git-receive-pack",
                                  "/info/refs?service=git-upload-pack&service=x",
                                  "/info/refs?service=git-receive-pack&service=x",
                                  "/info/refs?service=git-x&z",
                                  "/info/refs?service=x&z",
                                  "/info/refs?",
                                  "/git-upload-pack",
                                  "/git-receive-pack",
                                  "/git-upload-pack?",
                                  "/git-receive-pack?",
                                  "/git-receive-pack?z",
                                  "/git-upload-pack?z",
                                  "/git-upload-pack?service=x",
                                  "/git-receive-pack?service=git-upload-pack",
                                  "/info/refs/",
                                  "/git-receive-pack/",
                                  "/git-upload-pack/"})
      w.targets.push_back(repo + end);
  w.header_sets = {
      {},
      {{"content-type", "application/x-git-upload-pack-request"}},
      {{"content-type", "application/x-git-receive-pack-request"}},
      {{"content-type", "application/x-git-receive-pack-request"}, {"content-type", "application/x-git-receive-pack-request"}},
      {{"content_type", "application/x-git-receive-pack-request"}}};
  return w;
}

World Overrides() {
  World w{.name = "overrides", .pairs = 1'000, .verbs = {"GET", "POST", "http", "GET,DELETE"}, .hosts = {"a.t"}};
  w.opening_methods = true;
  w.headers = {"", "", "x-http-method=*", "x-a=b"};
  w.names = {"a.t"};
  w.methods = {"GET", "POST", "DELETE", "PUT", "HEAD"};
  for (const std::string a : {"", "b", "c"}) {
    for (const std::string o : {"", "get", "POST", "delete", "PUT", "HEAD"}) {
      for (const std::string p : {"", "GET", "POST", "x"}) {
        std::vector<std::pair<std::string, std::string>> set;
        if (!a.empty()) set.emplace_back("x-a", a);
        if (!o.empty()) set.emplace_back("x-http-method-override", o);
        if (!p.empty()) set.emplace_back("x-http-method", p);
        w.header_sets.push_back(set);
        if (o.empty()) continue;
        set.emplace_back("x-http-method-override", "DELETE");
        w.header_sets.push_back(set);
        set.emplace_back("x-http-method-override", "GET");
        w.header_sets.push_back(std::move(set));
      }
    }
  }
  return w;
}

// Requests by GET carry their operation in the URL; without a media type there is no body.
bool IsFeasible(const Witness& tuple) {
  using Kind = WitnessBody::Kind;
  const Kind kind = tuple.body.kind;
  if (kind == Kind::kNone) return true;
  if (tuple.upgrade != policy::Upgrade::kNone) return false;
  const bool get = tuple.method == "GET" || tuple.method == "DELETE";
  if (kind == Kind::kGraphql && get) return tuple.query.starts_with("query=");
  if (kind == Kind::kPush) return true;
  if (kind == Kind::kLfs && !tuple.path.ends_with("/batch")) return false;
  return !get || !tuple.headers.empty();
}

void AddBodies(const World& world, Witness request, World* out) {
  for (const auto upgrade : {policy::Upgrade::kNone, policy::Upgrade::kWebSocket}) {
    if (upgrade != policy::Upgrade::kNone && (!world.upgrades || request.method != "GET")) continue;
    for (const WitnessBody& body : world.bodies) {
      request.upgrade = upgrade;
      request.body = body;
      if (IsFeasible(request)) out->tuples.push_back(request);
    }
  }
}

void AddRequests(const World& world, const Witness& at, World* out) {
  for (const policy::Scheme scheme : {policy::Scheme::kHttps, policy::Scheme::kHttp}) {
    if (scheme == policy::Scheme::kHttp && !world.both_schemes) continue;
    for (const std::string& method : world.methods) {
      for (const std::string& target : world.targets) {
        for (const auto& headers : world.header_sets) {
          Witness request = at;
          request.layer = Layer::kHttp;
          request.scheme = scheme;
          request.method = method;
          request.headers = headers;
          const size_t mark = target.find('?');
          request.path = target.substr(0, mark);
          request.has_query = mark != std::string::npos;
          if (request.has_query) request.query = target.substr(mark + 1);
          AddBodies(world, std::move(request), out);
        }
      }
    }
  }
}

void AddConnections(const Witness& who, World* world) {
  for (const std::string& address : world->addresses) {
    for (const uint16_t port : world->port_list) {
      Witness at = who;
      at.address = IpAddress::Parse(address);
      at.port = port;
      for (const Layer layer : {Layer::kTcp, Layer::kTls, Layer::kUdp}) {
        at.layer = layer;
        world->tuples.push_back(at);
      }
      AddRequests(*world, at, world);
      world->cells.resize(world->tuples.size(), ++world->connections);
    }
  }
}

void AddTuples(World* world) {
  for (const WitnessProcess& process : world->processes) {
    for (const int day : world->days) {
      Witness who;
      who.process = process;
      who.time = kNow + day * kDay;
      for (const std::string& socket : world->sockets) {
        who.layer = Layer::kUnix;
        who.path = socket;
        world->tuples.push_back(who);
      }
      who.path.clear();
      for (const std::string& name : world->names) {
        who.host = name;
        who.layer = Layer::kDns;
        for (const uint16_t type : {uint16_t{1}, uint16_t{28}, uint16_t{16}, uint16_t{65}}) {
          if (name.empty()) continue;
          who.dns_type = type;
          world->tuples.push_back(who);
        }
        who.dns_type = 0;
        world->cells.resize(world->tuples.size(), 0);
        AddConnections(who, world);
      }
    }
  }
}

std::vector<World> MakeWorlds() {
  std::vector<World> worlds{Hosts(),     Paths(),   Readings(), Queries(), Addresses(), Processes(), Git(),
                            Overrides(), Graphql(), Calls(),    Pushes(),  Batches(),   Joined(),    Travels(),
                            Besides(),   Schemes(), Bound(),    Remote(),  Lineages()};
  for (World& world : worlds) AddTuples(&world);
  return worlds;
}

}  // namespace

const std::vector<World>& Worlds() {
  static const std::vector<World> kWorlds = MakeWorlds();
  return kWorlds;
}

}  // namespace sluice::prover
