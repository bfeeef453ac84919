#!/usr/bin/python3
"""The man page and the completions list exactly the flags that --help lists, and each command has a page and a paragraph; a launch file says
all that the flags of `run` say.

Usage: flags_test.py SOURCE_FOLDER SLUICE_BINARY
"""
import json
import pathlib
import re
import subprocess
import sys

COMMANDS = ("run", "proxy", "sidecar", "agent", "oci-seccomp", "health", "doctor", "lint", "prove", "explain", "test", "fmt", "import", "preset list", "preset show", "completion")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")


# Where a launch file's member is not called as the flag is.
MEMBERS = {
    "rw": ["read-write"], "ro": ["read-only"], "env": ["environment.pass", "environment.set"], "env-inherit": ["environment.inherit"],
    "unsafe-env": ["environment.unsafe-pass"], "policy": ["policy.file"], "policy-fd": ["policy.fd"], "allow": ["policy.allow"],
    "preset": ["policy.presets"], "label": ["labels"], "timeout": ["limits.wall-time"], "max-memory": ["limits.memory"],
    "max-processes": ["limits.processes"], "max-open-files": ["limits.open-files"], "max-output": ["limits.output"],
    "resolver": ["upstream.resolvers"], "stub-domain": ["upstream.stub-domains"], "upstream-ca": ["upstream.ca"], "via": ["upstream.via"],
    "via-auth": ["upstream.via-auth"], "via-ca": ["upstream.via-ca"], "via-except": ["upstream.via-except"],
}
NO_MEMBER = {"help", "spec"}
NO_FLAG = {"version", "command"}


def members(properties, section=""):
    for name, about in properties.items():
        if "properties" in about:
            yield from members(about["properties"], f"{name}.")
        else:
            yield section + name


def launch_faults(root, of_run):
    """What `sluice run` can be told by flags and not by a launch file, or the other way round."""
    known = set(members(json.loads((root / "packaging/schema/launch.schema.json").read_text())["properties"]))
    said = {flag: MEMBERS.get(flag, [flag]) for flag in of_run - NO_MEMBER}
    faults = [f"launch.schema.json lacks `{member}`, which is --{flag} of run" for flag, names in sorted(said.items()) for member in names if member not in known]
    faults += [f"launch.schema.json has `{member}`, which no flag of run says" for member in sorted(known - NO_FLAG - {name for names in said.values() for name in names})]
    words = set(re.findall(r"`\.?([\w.-]+)`", (root / "docs/launch.md").read_text()))
    faults += [f"docs/launch.md lacks `{member}`" for member in sorted(known) if not {member, member.split(".")[-1]} & words]
    return faults


def help_flags(binary, *command):
    text = subprocess.run([binary, *command, "--help"], capture_output=True, text=True, check=True).stdout
    # Examples show flags of other programs too; only the lists of options count.
    return set(FLAG.findall(re.split(r"(?im)^\s*examples?:?\s*$", text)[0]))


def own_flags(binary, *command):
    """Without those that only a description names."""
    text = subprocess.run([binary, *command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?m)^  (?:-\w,)?--([a-z][a-z-]+)", re.split(r"(?m)^Examples:$", text)[0]))


def bash_offers(root, command):
    script = f'source "$1"; COMP_WORDS=(sluice {command} --); COMP_CWORD=2; _sluice; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return set(FLAG.findall(subprocess.run(["bash", "-c", script, "-", root / "packaging/completions/sluice.bash"], capture_output=True, text=True).stdout))


def zsh_offers(root, command):
    text = (root / "packaging/completions/sluice.zsh").read_text()
    block = re.search(rf"(?m)^        {command}\)\n(.*?)^          ;;", text, re.S)
    serving = re.search(r"(?m)^  serving=\(\n(.*?)^  \)", text, re.S)[1]
    # Descriptions may name flags too.
    return set(FLAG.findall(re.sub(r"\[[^]]*\]", "", block[1].replace('"${serving[@]}"', serving)))) if block else set()


def fish_offers(root, command):
    text = (root / "packaging/completions/sluice.fish").read_text()
    return set(re.findall(rf"__fish_seen_subcommand_from (?:[\w-]+ )*{command}\b[^']*' .*?-l ([a-z][a-z-]+)", text))


def check(root, binary):
    of_run, everything = help_flags(binary, "run"), help_flags(binary)
    for command in COMMANDS:
        everything |= help_flags(binary, *command.split())
    faults = []
    man = (root / "packaging/man/sluice.1").read_text().replace("\\-", "-")
    entries = set(FLAG.findall(re.split(r"(?m)^\.SH EXAMPLES", man)[0]))
    faults += [f"sluice.1 lacks --{flag}" for flag in sorted(everything - entries)]
    faults += [f"sluice.1 has --{flag}, which no --help lists" for flag in sorted(entries - everything)]
    synopsis, description = re.split(r"(?m)^\.SH (?:SYNOPSIS|DESCRIPTION)\n", man)[1:3]
    faults += [f"sluice.1 tells --{flag} in its synopsis alone" for flag in sorted(set(FLAG.findall(synopsis)) - set(FLAG.findall(description)))]
    listed = set(re.findall(r"^  ([a-z][a-z-]+) {2,}", subprocess.run([binary, "--help"], capture_output=True, text=True).stdout, re.M))
    faults += [f"{command}: not among COMMANDS, or --help has it not" for command in sorted({c.split()[0] for c in COMMANDS} ^ listed)]
    for command in sorted(listed):
        if not (root / f"packaging/man/sluice-{command}.1").is_file():
            faults.append(f"there is no sluice-{command}.1")
        if not re.search(rf"(?m)^\.TP\n\.B {command}$", description):
            faults.append(f"sluice.1 has no paragraph on {command}")
    for command in sorted(listed):
        # Those of `list` and `show` are completed together.
        words = [c.split() for c in COMMANDS if c.split()[0] == command]
        wanted = set.union(*(own_flags(binary, *w) for w in words)) - {"help"}
        for shell, offered in (("bash", bash_offers(root, command)), ("zsh", zsh_offers(root, command)), ("fish", fish_offers(root, command))):
            faults += [f"sluice.{shell}, {command}: --{flag} is missing" for flag in sorted(wanted - offered)]
            faults += [f"sluice.{shell}, {command}: --{flag} is not one" for flag in sorted(offered - wanted - {"help"})]
    for shell in ("bash", "zsh", "fish"):
        text = (root / f"packaging/completions/sluice.{shell}").read_text()
        listed = set(re.findall(r"-l ([a-z][a-z-]+)", text)) if shell == "fish" else set(FLAG.findall(text))
        faults += [f"sluice.{shell} lacks --{flag}" for flag in sorted(everything - listed)]
        printed = subprocess.run([binary, "completion", shell], capture_output=True, text=True).stdout
        if printed.strip() != text.strip():
            faults.append(f"`sluice completion {shell}` does not print packaging/completions/sluice.{shell}")
    return faults + launch_faults(root, of_run), len(of_run)


def main():
    faults, flags = check(pathlib.Path(sys.argv[1]), sys.argv[2])
    print("\n".join(faults))
    print(f"{flags} flags of run checked, {len(faults)} faults")
    return 1 if faults or flags < 10 else 0


sys.exit(main())
