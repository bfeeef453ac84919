# bash completion for sluice; written by `sluice completion bash`.
_sluice() {
  local cur prev command="" i
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  # `--policy=p`: readline makes three words of it.
  if [[ $cur == = && $prev == --* ]]; then
    cur=""
  elif [[ $prev == = && ${COMP_WORDS[COMP_CWORD - 2]} == --* ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  # For words of this script alone: compgen expands them as the shell does.
  _sluice_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
  # For lines that come from elsewhere: they are compared, never expanded, and inserted in quotes, which readline sees to for files alone.
  _sluice_lines() {
    local line quoted
    compopt +o filenames 2>/dev/null
    while IFS= read -r line; do
      printf -v quoted %q "$line"
      [[ $line == "$cur"* || $quoted == "$cur"* ]] && COMPREPLY+=("$quoted")
    done
  }
  # A version is not offered: `@` would end the word.
  _sluice_presets() { _sluice_lines < <(command sluice preset list 2>/dev/null | sed 's/[@ ].*//' | sort -u); }
  _sluice_files() { mapfile -t COMPREPLY < <(compgen -f -- "$cur"); }
  _sluice_words_or_files() { if [[ $cur == -* ]]; then _sluice_words "$1"; else _sluice_files; fi; }
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      # What follows is the workload's own command line.
      if ((i == COMP_CWORD - 1)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      else
        _sluice_files
      fi
      return
    fi
    [[ -z $command && ${COMP_WORDS[i]} != -* ]] && command=${COMP_WORDS[i]}
  done
  case $prev in
    -p | --policy | --audit | --upstream-ca | --ca-cert | --ca-key | --via-ca | --ca-out | --bundle-out | --tokens | --listen-tls-cert | \
      --listen-tls-key | --client-ca | --by | --accept | --exe-manifest | --admin-token | --policy-key | --spec | --transcript | --result | \
      --control | --agent | --base | --body)
      _sluice_files
      return
      ;;
    --rw | --ro | --cwd | --workspace | --state | --state-dir | --policy-dir)
      mapfile -t COMPREPLY < <(compgen -d -- "$cur")
      return
      ;;
    -e | --env | --unsafe-env)
      mapfile -t COMPREPLY < <(compgen -e -- "$cur")
      return
      ;;
    --format)
      if [[ $command == lint || $command == prove ]]; then
        _sluice_words "text json sarif github markdown"
      else
        _sluice_words "text json"
      fi
      return
      ;;
    --mode) _sluice_words "run sidecar proxy agent"; return ;;
    --fail-on) _sluice_words "note warning error never"; return ;;
    --from) _sluice_words "openshell sandbox-runtime opensandbox gh-aw-firewall harden-runner smokescreen cilium"; return ;;
    --base-git) _sluice_lines < <(git for-each-ref --format='%(refname:short)' 2>/dev/null); return ;;
    --preset) _sluice_presets; return ;;
    --proxy-protocol) _sluice_words "required"; return ;;
    --compat) _sluice_words "opensandbox"; return ;;
    --processes) _sluice_words "auto seen unseen"; return ;;
    --env-inherit) _sluice_words "usual none"; return ;;
    --on-disconnect | --on-restart) _sluice_words "kill freeze"; return ;;
    --form) _sluice_words "config docker"; return ;;
    --path) _sluice_words "/readyz /healthz"; return ;;
    --ref-change) _sluice_words "create update delete"; return ;;
    -a | --allow | -l | --label | --peer | --annotation | --metadata | --admin | --health | --policy-url | --policy-poll | --proxy-port | --dns-port | \
      --listen | --proxy-protocol-from | --drain | --only | --never | --always | --limit | --min-coverage | --set | --resolver | \
      --stub-domain | --via | --via-auth | --via-except | --name | --timeout | --ip | --at | --max-memory | --max-processes | --max-open-files | \
      --max-output | --publish | --lifeline | --policy-fd | --log-fd | --field | --operation | --tool | --ref | --json | --content-type) return ;;
  esac
  # What every command that serves a policy takes.
  local serving="--policy --allow --preset --audit --resolver --stub-domain --upstream-ca --ca-cert --ca-key --mirror-certificates --via \
    --via-auth --via-ca --via-except --name --label --quiet --verbose --help"
  case $command in
    "") _sluice_words "run proxy sidecar agent oci-seccomp health doctor lint prove fmt test explain import preset completion --help --version" ;;
    run)
      _sluice_words "$serving --rw --ro --env --unsafe-env --env-inherit --workspace --cwd --spec --timeout --max-memory --max-processes \
        --max-open-files --max-output --publish --transcript --result --control --await-hold --policy-fd --log-fd --lifeline --on-disconnect \
        --pid-namespace --allow-user-namespaces --allow-containers --allow-nested --fail-on-deny --kill-on-deny --"
      ;;
    proxy)
      _sluice_words "$serving --listen --ca-out --bundle-out --print-env --tokens --listen-tls-cert --listen-tls-key --client-ca \
        --proxy-protocol --proxy-protocol-from --allow-open --drain"
      ;;
    sidecar)
      _sluice_words "$serving --ca-out --bundle-out --processes --no-inbound --host-network --unsafe-workload-rights --proxy-port --dns-port --dry-run --drain --admin \
        --admin-token --admin-open --health --state --policy-url --policy-key --policy-poll --compat"
      ;;
    agent) _sluice_words "$serving --listen --policy-dir --on-restart --ca-out --bundle-out --peer --annotation --state-dir" ;;
    doctor) _sluice_words "--mode --format --no-live --help" ;;
    oci-seccomp) _sluice_words "--agent --form --metadata --wait-killable --base --help" ;;
    health) _sluice_words "--path --timeout --help" ;;
    lint) _sluice_words_or_files "--fail-on --format --help" ;;
    prove) _sluice_words_or_files "--base-git --never --always --accept --exe-manifest --at --limit --format --help" ;;
    fmt) _sluice_words_or_files "--check --stdout --help" ;;
    test) _sluice_words_or_files "--min-coverage --format --help" ;;
    explain)
      _sluice_words_or_files "--by --under --ip --header --at --field --operation --tool --ref --ref-change --json --body --content-type --format --help"
      ;;
    preset)
      if [[ $prev == show && $cur != -* ]]; then
        _sluice_presets
      elif [[ " ${COMP_WORDS[*]:1:COMP_CWORD-1} " == *" "@(list|show)" "* ]]; then
        _sluice_words "--set --format --help"
      else
        _sluice_words "list show --set --format --help"
      fi
      ;;
    import) _sluice_words_or_files "--from --only --format --verbose --help" ;;
    completion) _sluice_words "bash zsh fish --help" ;;
  esac
}
complete -o filenames -F _sluice sluice
