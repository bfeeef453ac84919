# bash completion for sluice; written by `sluice completion bash`.
_sluice() {
  local cur prev command="" i
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      # What follows is the workload's own command line.
      if ((i == COMP_CWORD - 1)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      return
    fi
    [[ -z $command && ${COMP_WORDS[i]} != -* ]] && command=${COMP_WORDS[i]}
  done
  case $prev in
    --policy | --audit | --upstream-ca | --ca-cert | --ca-key | --via-ca | --ca-out | --bundle-out | --tokens | --listen-tls-cert | --listen-tls-key | --client-ca | --by | --accept | --exe-manifest | --admin-token | --policy-key | --spec | --transcript | --result)
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
      ;;
    --rw | --ro | --cwd | --workspace | --state)
      mapfile -t COMPREPLY < <(compgen -d -- "$cur")
      return
      ;;
    --env | --unsafe-env)
      mapfile -t COMPREPLY < <(compgen -e -- "$cur")
      return
      ;;
    --format)
      if [[ $command == lint || $command == prove ]]; then
        mapfile -t COMPREPLY < <(compgen -W "text json sarif github markdown" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -W "text json" -- "$cur")
      fi
      return
      ;;
    --mode)
      mapfile -t COMPREPLY < <(compgen -W "run sidecar proxy agent" -- "$cur")
      return
      ;;
    --fail-on)
      mapfile -t COMPREPLY < <(compgen -W "note warning error never" -- "$cur")
      return
      ;;
    --from)
      mapfile -t COMPREPLY < <(compgen -W "openshell sandbox-runtime opensandbox gh-aw-firewall harden-runner smokescreen cilium" -- "$cur")
      return
      ;;
    --base-git)
      mapfile -t COMPREPLY < <(compgen -W "$(git for-each-ref --format='%(refname:short)' 2>/dev/null)" -- "$cur")
      return
      ;;
    --proxy-protocol)
      mapfile -t COMPREPLY < <(compgen -W "required" -- "$cur")
      return
      ;;
    --compat)
      mapfile -t COMPREPLY < <(compgen -W "opensandbox" -- "$cur")
      return
      ;;
    --processes)
      mapfile -t COMPREPLY < <(compgen -W "auto seen unseen" -- "$cur")
      return
      ;;
    --env-inherit)
      mapfile -t COMPREPLY < <(compgen -W "usual none" -- "$cur")
      return
      ;;
    --on-disconnect)
      mapfile -t COMPREPLY < <(compgen -W "kill freeze" -- "$cur")
      return
      ;;
    --on-restart)
      mapfile -t COMPREPLY < <(compgen -W "kill freeze" -- "$cur")
      return
      ;;
    --form)
      mapfile -t COMPREPLY < <(compgen -W "config docker" -- "$cur")
      return
      ;;
    --path)
      mapfile -t COMPREPLY < <(compgen -W "/readyz /healthz" -- "$cur")
      return
      ;;
    --peer | --annotation | --metadata | --admin | --health | --policy-url | --policy-poll | --proxy-port | --dns-port | --listen | --proxy-protocol-from | --drain | --only | --never | --always | --limit | --min-coverage | --allow | --preset | --set | --resolver | --stub-domain | --via | --via-auth | --via-except | --name | --label | --timeout | --ip | --at | \
      --max-memory | --max-processes | --max-open-files | --max-output | --publish | --lifeline) return ;;
  esac
  case $command in
    "") mapfile -t COMPREPLY < <(compgen -W "run proxy sidecar agent oci-seccomp health doctor lint prove fmt test explain import preset completion --help --version" -- "$cur") ;;
    run)
      mapfile -t COMPREPLY < <(compgen -W "--policy --allow --preset --audit --resolver --stub-domain --upstream-ca --ca-cert --ca-key --mirror-certificates --via --via-auth \
        --via-ca --via-except --rw --ro --env --unsafe-env --env-inherit --workspace --cwd --spec --name --label --timeout --max-memory \
        --max-processes --max-open-files --max-output --publish --transcript --result --control --await-hold --policy-fd --log-fd --lifeline --on-disconnect --pid-namespace \
        --allow-user-namespaces --allow-nested --fail-on-deny --kill-on-deny --quiet --verbose --help --" -- "$cur")
      ;;
    proxy)
      mapfile -t COMPREPLY < <(compgen -W "--listen --policy --allow --preset --audit --resolver --stub-domain --upstream-ca --ca-cert --ca-key --mirror-certificates --via --via-auth \
        --via-ca --via-except --ca-out --bundle-out --print-env \
        --tokens --listen-tls-cert --listen-tls-key --client-ca --proxy-protocol --proxy-protocol-from --allow-open --drain --name --label --quiet \
        --verbose --help" -- "$cur")
      ;;
    sidecar)
      mapfile -t COMPREPLY < <(compgen -W "--policy --allow --preset --audit --resolver --stub-domain --upstream-ca --ca-cert --ca-key --mirror-certificates --via --via-auth \
        --via-ca --via-except --ca-out --bundle-out --processes --no-inbound --host-network --proxy-port --dns-port --dry-run --drain \
        --admin --admin-token --admin-open --health --state --policy-url --policy-key --policy-poll --compat --name \
        --label --quiet --verbose --help" -- "$cur")
      ;;
    doctor) mapfile -t COMPREPLY < <(compgen -W "--mode --format --no-live --help" -- "$cur") ;;
    agent)
      mapfile -t COMPREPLY < <(compgen -W "--listen --policy --policy-dir --allow --preset --audit --resolver --stub-domain --upstream-ca --ca-cert --ca-key --mirror-certificates \
        --via --via-auth --via-ca --via-except --on-restart --ca-out --bundle-out --peer --annotation --state-dir --name --label --quiet --verbose \
        --help" -- "$cur")
      ;;
    oci-seccomp) mapfile -t COMPREPLY < <(compgen -W "--agent --form --metadata --wait-killable --base --help" -- "$cur") ;;
    health) mapfile -t COMPREPLY < <(compgen -W "--path --timeout --help" -- "$cur") ;;
    lint)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--fail-on --format --help" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      ;;
    prove)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--base-git --never --always --accept --exe-manifest --at --limit --format --help" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      ;;
    fmt)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--check --stdout --help" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      ;;
    test)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--min-coverage --format --help" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      ;;
    explain)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--by --ip --at --field --operation --tool --ref --ref-change --json --body --content-type --format --help" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      ;;
    preset) mapfile -t COMPREPLY < <(compgen -W "list show --set --format --help" -- "$cur") ;;
    import)
      if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--from --only --format --verbose --help" -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      ;;
    completion) mapfile -t COMPREPLY < <(compgen -W "bash zsh fish --help" -- "$cur") ;;
  esac
}
complete -o filenames -F _sluice sluice
