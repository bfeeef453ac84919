#include "app/lint_codes.h"

#include <array>

namespace sluice::app {
namespace {

// What `lint` and `prove` both say.
constexpr CodeInfo kNeverBroken = {"never-broken", "A `never` assertion is broken",
                                   "The policy reaches what must never be reached. The witness is one such thing."};
constexpr CodeInfo kAlwaysBroken = {"always-broken", "An `always` assertion is broken",
                                    "The policy refuses what must always be reachable. The witness is one such thing."};
constexpr CodeInfo kUnknown = {
    "unknown", "The question was too large",
    "The prover reached a bound before it had an answer, so the change counts as not proved. Raise --limit, or split the "
    "policy."};
constexpr CodeInfo kDoesNotLoad = {"does-not-load", "The policy does not load",
                                   "The file is no valid policy. Nothing of it is enforced until it is mended."};
constexpr CodeInfo kProverFault = {
    "prover-fault", "A witness did not replay",
    "The prover and the enforcer disagree about a witness, so nothing is proved. This is a defect of Sluice: please report it "
    "with both policies."};

constexpr auto kCodes = std::to_array<CodeInfo>({
    kAlwaysBroken,
    {"any-request", "Every method and path",
     "The rule lets every request to its host through. Name the methods, and the paths where they are known."},
    {"bad-ignore", "A comment that ignores nothing",
     "A `# sluice:ignore CODE reason` comment names an unknown code or gives no reason, so it has no effect."},
    {"broad-credential", "A credential for a wildcard",
     "The rule sends its credential to every host that its wildcard holds. Name the hosts."},
    {"broad-host", "A wildcard over many owners",
     "The wildcard stands directly below a public suffix, where anyone can register a name. Name the hosts."},
    {"cleartext", "Requests in the clear",
     "The rule allows `http://`: what is sent can be read, and answers can be forged, on the way."},
    {"credential-by", "A credential for a program",
     "`by` and `under` say who asks and are no wall: another process of the sandbox can trace an allowed program, preload into "
     "it or run "
     "code by it, and use the credential. Hold the methods and paths to what any of them may do."},
    {"deny-by-body", "A deny that refuses what it cannot read",
     "A deny that looks at bodies holds for every body that cannot be read that way. Without a path that is nearly every POST."},
    kDoesNotLoad,
    {"duplicate", "The same rule twice", "Another rule says exactly the same. Remove one."},
    {"everything", "Every host", "The rule's host is `**`: it holds for every name and every address."},
    {"expired", "An expired rule", "The rule's `until` has passed, so it grants nothing. Remove it or renew it."},
    {"expires-soon", "A rule about to expire", "The rule's `until` is less than 30 days away."},
    {"half-working", "Half of an exchange is refused",
     "A deny takes away one of the requests that the allowed operation needs, so the operation fails."},
    {"idle-deny", "A deny that refuses nothing",
     "No allow grants anything of what the deny refuses. It may be kept as a guard against rules to come; else remove it."},
    {"import-narrower", "Narrower than in the other tool",
     "The entry of another tool's policy reaches less here than it does there, or than a reader may think."},
    {"import-note", "An entry that may be misread",
     "The entry of another tool's policy means here what it means there, though a reader may think otherwise."},
    {"import-nothing", "An entry without effect",
     "The entry of another tool's policy gives no rule. It is most likely a mistake there too."},
    {"import-wider", "Wider than it looks",
     "The entry of another tool's policy reaches more than its author may think, or more than it does there. docs/import.md has "
     "what each tool's texts mean."},
    {"mcp-session", "MCP without a session",
     "An MCP client initializes before it calls anything, and no rule lets it there. Allow `mcp initialize` too."},
    {"missing-by", "A rule for every program",
     "Rules beside this one say which program they are for, and this one does not. Add `by`, if it was forgotten."},
    {"moot", "A rule that an opaque one swallows",
     "A `tcp` or `tls` rule passes the same connections through unseen, so nothing that this rule says about requests is ever "
     "judged."},
    kNeverBroken,
    {"no-allow", "A policy that refuses everything",
     "The policy has no rule that allows anything. That may be meant; else its rules are missing."},
    {"not-compared", "The policy is too large to compare",
     "Some rules were not compared with each other, so remarks may be missing."},
    {"older-preset", "An older version of a preset",
     "The preset has a newer version, which is better for most. Move to it; `sluice prove` shows what changes."},
    {"opaque-allow-meets-deny", "An opaque allow and a deny inside it",
     "The allow would pass connections through unseen while the deny asks to look inside, so the allow grants nothing there. "
     "Narrow one of them."},
    {"port-53", "Port 53 belongs to the resolver",
     "Traffic to port 53 always reaches Sluice's own resolver, so the rule has no effect there."},
    kProverFault,
    {"push", "Every branch can be written", "The rule allows pushes to all branches of those repositories. Name the refs."},
    {"redundant", "A rule that adds nothing",
     "Other rules grant everything that this one grants. Remove it, unless it is kept for its note."},
    {"shadowed", "A rule that grants nothing", "Denies refuse everything that the allow would grant."},
    kUnknown,
    {"unknown-method", "A method that nobody registered",
     "The method is a legal token but no known one. If it is a slip, the rule grants nothing useful."},
    {"unused-ignore", "A comment that is not needed",
     "The remark that the `# sluice:ignore` comment leaves out is not made any more. Remove the comment."},
    {"wider-than-comment", "Wider than its comment says",
     "The comment or note names one host, and the rule's wildcard holds for others too. Narrow the rule, or say so in the "
     "comment."},
});

constexpr auto kProveCodes = std::to_array<CodeInfo>({
    {"acceptance-expired", "An acceptance has expired", "The entry counts no longer. Renew it with a new date, or remove it."},
    {"acceptance-unused", "An accepted region is not needed",
     "Nothing that the head gains lies in this accepted region. Remove the entry."},
    kAlwaysBroken,
    kDoesNotLoad,
    {"narrowed", "The policy lets out less",
     "The base policy allows something that the head refuses. The witness is one such thing."},
    kNeverBroken,
    {"not-proved", "Nothing was proved",
     "What was asked could not be read, so no change was looked at. The message has the reason."},
    kProverFault,
    kUnknown,
    {"widened", "The policy lets out more",
     "The rule allows something that the base policy refuses. The witness is one such thing; narrow the rule, or accept the "
     "region with --accept."},
});

}  // namespace

std::span<const CodeInfo> LintCodes() { return kCodes; }
std::span<const CodeInfo> ProveCodes() { return kProveCodes; }

}  // namespace sluice::app
