#compdef sluice
# zsh completion for sluice; written by `sluice completion zsh`.
# Lines that come from elsewhere: compadd takes them as they are, and quotes them.
_sluice_presets() {
  local -a names
  names=(${(f)"$(command sluice preset list 2>/dev/null)"})
  compadd -- ${(u)names%%[@ ]*}
}
_sluice_revisions() {
  local -a names
  names=(${(f)"$(git for-each-ref --format='%(refname:short)' 2>/dev/null)"})
  compadd -a names
}
_sluice() {
  local state line
  local -a commands
  commands=(
    'run:run a program under a policy'
    'proxy:serve an explicit proxy under a policy'
    'sidecar:fence every other process of this network namespace'
    'agent:supervise the containers of runtimes'
    'oci-seccomp:print the seccomp profile for the agent'
    'health:ask a running sidecar whether it is ready'
    'doctor:find out what this machine can enforce'
    'lint:check policy files'
    'prove:say what a policy change lets out'
    'fmt:rewrite policy files in their canonical form'
    'test:run unit tests of policies'
    'explain:say what a policy does with one request'
    'preset:show the rule sets that ship'
    "import:print another tool's policy as a native one"
    'completion:print a completion script'
  )
  # What every command that serves a policy takes.
  local -a serving
  serving=(
    '--policy=[policy file]:file:_files'
    '*--allow=[one more rule]:rule:'
    '*--preset=[rules of a preset]:preset:_sluice_presets'
    '--audit=[write records here, as JSON Lines]:file:_files'
    '*--resolver=[upstream resolver]:address:'
    '*--stub-domain=[servers of its own for a domain]:domain=server:'
    '*--upstream-ca=[trust this authority upstream]:file:_files'
    '--ca-cert=[inspect with this authority]:file:_files'
    '--ca-key=[key of that authority]:file:_files'
    '--mirror-certificates[show clients the names of upstream certificates]'
    '--via=[upstream proxy]:url:'
    '--via-auth=[where the login for that proxy is]:source:'
    '--via-ca=[roots for that proxy]:file:_files'
    '*--via-except=[reached without that proxy]:host:'
    '--name=[name of the sandbox in records]:name:'
    '*--label=[label in records]:key=value:'
    '--quiet[say only what went wrong]'
    '--verbose[say more]'
  )
  _arguments -C '(- *)--help[show help]' '(- *)--version[show the version]' '1: :->command' '*:: :->arguments'
  case $state in
    command) _describe command commands ;;
    arguments)
      case $line[1] in
        run)
          _arguments "${serving[@]}" \
            '*--rw=[folder the program may write]:folder:_files -/' \
            '*--ro=[folder the program may read]:folder:_files -/' \
            '*--env=[pass or set a variable]:name:_parameters -g "*export*"' \
            '*--unsafe-env=[pass a variable that looks like a credential]:name:_parameters -g "*export*"' \
            '--env-inherit=[what is passed unasked]:what:(usual none)' \
            '--workspace=[prepared folder the program may write]:folder:_files -/' \
            '--cwd=[start the program here]:folder:_files -/' \
            '--spec=[read the launch from this file]:file:_files' \
            '--timeout=[end the program after this time]:duration:' \
            '--max-memory=[memory of the run]:octets:' \
            '--max-processes=[processes of the run]:count:' \
            '--max-open-files=[descriptors of each process]:count:' \
            '--max-output=[end the program when it has written this much]:octets:' \
            "*--publish=[lead a port of this machine to the sandbox's]:port:" \
            '--transcript=[write what the program prints here, too]:file:_files' \
            '--result=[write what the run came to here]:file:_files' \
            '--lifeline=[descriptor whose other end the launcher holds]:descriptor:' \
            '--on-disconnect=[what becomes of a run without its launcher]:what:(kill freeze)' \
            '--pid-namespace[a process namespace of its own, always so]' \
            '--allow-user-namespaces[let the program make namespaces]' \
            '--allow-containers[let the program run containers]' \
            '--allow-nested[serve sluice run in the sandbox]' \
            '--kill-on-deny[end the run at its first denial]' \
            '*--control=[serve the administration on this socket]:socket:_files' \
            '--await-hold[start once somebody holds the run]' \
            '--policy-fd=[read the policy from this descriptor]:number:' \
            '--log-fd=[write own lines to this descriptor]:number:' \
            '--fail-on-deny[exit 3 when something was denied]' \
            '(- *)--help[show help]' \
            '(-)1:program: _command_names -e' \
            '*::arguments: _normal'
          ;;
        proxy)
          _arguments "${serving[@]}" \
            '*--listen=[where clients connect]:address:' \
            "--ca-out=[write the authority's certificate here]:file:_files" \
            "--bundle-out=[write the system's roots and that certificate here]:file:_files" \
            '--print-env[print the variables that clients need]' \
            '--tokens=[names and hashed tokens of clients]:file:_files' \
            '--listen-tls-cert=[speak TLS to clients]:file:_files' \
            '--listen-tls-key=[its key]:file:_files' \
            '--client-ca=[serve only clients with a certificate of these]:file:_files' \
            '--proxy-protocol=[want a PROXY header]:when:(required)' \
            '*--proxy-protocol-from=[whose headers are believed]:cidr:' \
            '--allow-open[listen beyond this machine without asking who it is]' \
            '--drain=[let open connections end for this long]:duration:' \
            '(- *)--help[show help]'
          ;;
        sidecar)
          _arguments "${serving[@]}" \
            "--ca-out=[write the authority's certificate here]:file:_files" \
            "--bundle-out=[write the system's roots and that certificate here]:file:_files" \
            '--processes=[whether other processes can be told apart]:how:(auto seen unseen)' \
            '--no-inbound[drop new connections from outside]' \
            '--host-network[fence the own network of a machine]' \
            '--unsafe-workload-rights[be ready beside a workload that could go around the fence]' \
            '--proxy-port=[port that TCP is redirected to]:port:' \
            '--dns-port=[port that lookups are redirected to]:port:' \
            "--dry-run[print the fence's rules and end]" \
            '--drain=[let open connections end for this long]:duration:' \
            '*--admin=[serve the admin API here]:address:' \
            '--admin-token=[bearer token of the admin API]:file:_files' \
            '--admin-open[let it listen beyond loopback]' \
            '--health=[serve health and metrics here]:address:' \
            '--state=[keep the last policy and names here]:dir:_files -/' \
            '--policy-url=[fetch the policy here]:url:' \
            '--policy-key=[keys that sign it]:file:_files' \
            '--policy-poll=[how often it is asked for]:duration:' \
            '--compat=[take the policy as another sidecar does]:which:(opensandbox)' \
            '(- *)--help[show help]'
          ;;
        doctor)
          _arguments '*--mode=[what is to run here]:mode:(run sidecar proxy agent)' '--format=[how to print it]:format:(text json)' \
            '--no-live[start no programs]' '(- *)--help[show help]'
          ;;
        agent)
          _arguments "${serving[@]}" \
            '--listen=[socket that runtimes connect to]:path:_files' \
            '--policy-dir=[policies to choose from]:dir:_files -/' \
            "--ca-out=[write the authority's certificate here]:file:_files" \
            "--bundle-out=[write the system's roots and that certificate here]:file:_files" \
            '--on-restart=[what becomes of containers without a supervisor]:how:(kill freeze)' \
            '*--peer=[user whose runtimes are served]:uid:' \
            '*--annotation=[annotation that records show]:key:' \
            '--state-dir=[where running containers are recorded]:dir:_files -/' \
            '(- *)--help[show help]'
          ;;
        oci-seccomp)
          _arguments \
            "--agent=[the agent's socket]:path:_files" \
            '--form=[whose form the profile has]:form:(config docker)' \
            '--metadata=[text that the agent gets]:text:' \
            '--wait-killable[no handled signal interrupts a taken call]' \
            '--base=[profile that lists what is allowed]:file:_files' \
            '(- *)--help[show help]'
          ;;
        health)
          _arguments '--path=[what is asked]:path:(/readyz /healthz)' '--timeout=[for the whole question]:duration:' \
            '(- *)--help[show help]' '1:address:'
          ;;
        lint)
          _arguments '--fail-on=[exit 1 from this severity on]:severity:(note warning error never)' \
            '--format=[output]:format:(text json sarif github markdown)' '(- *)--help[show help]' '*:policy:_files'
          ;;
        prove)
          _arguments \
            "--base-git=[read each file's base from this revision]:revision:_sluice_revisions" \
            '*--never=[nothing of this may be reached]:rule:' \
            '*--always=[all of this must be reached]:rule:' \
            '--accept=[regions accepted before]:file:_files' \
            '--exe-manifest=[executables that exist]:file:_files' \
            '--at=[compare from this time on]:time:' \
            '--limit=[steps before the answer is unknown]:steps:' \
            '--format=[output]:format:(text json sarif github markdown)' \
            '(- *)--help[show help]' \
            '*:policy:_files'
          ;;
        fmt)
          _arguments '(--stdout)--check[change nothing, name what would change]' '(--check)--stdout[print the result]' \
            '(- *)--help[show help]' '*:policy:_files'
          ;;
        test)
          _arguments '--min-coverage=[percent of the rules that must decide a test]:percent:' '--format=[output]:format:(text json)' \
            '(- *)--help[show help]' '*:tests:_files'
          ;;
        explain)
          _arguments '--by=[executable that asks]:file:_files' '*--under=[executable of an ancestor]:file:_files' \
            '--ip=[address dialled]:address:' '*--header=[header field of the request]:name\: value:' '--at=[time of the request]:time:' \
            '*--field=[root field of GraphQL]:name:' '--operation=[name of the operation]:name:' '--tool=[tool of MCP]:name:' \
            '*--ref=[ref of a push]:ref:' '--ref-change=[how it changes]:change:(create update delete)' '*--json=[value in a body]:pointer=value:' \
            '--body=[body of the request]:file:_files' '--content-type=[type of that body]:type:' \
            '--format=[output]:format:(text json)' '(- *)--help[show help]' '1:policy:_files' '2:request:'
          ;;
        preset)
          _arguments '*--set=[value of a parameter]:parameter=value:' '--format=[output]:format:(text json)' \
            '(- *)--help[show help]' '1:what:(list show)' '2:preset:_sluice_presets'
          ;;
        import)
          _arguments '--from=[whose policy it is]:kind:(openshell sandbox-runtime opensandbox gh-aw-firewall harden-runner smokescreen cilium)' \
            '--only=[the service or job]:name:' '--format=[output]:format:(text json)' '--verbose[remarks on standard error too]' \
            '(- *)--help[show help]' '1:policy:_files'
          ;;
        completion) _arguments '1:shell:(bash zsh fish)' ;;
      esac
      ;;
  esac
}
if [[ ${funcstack[1]} == _sluice ]]; then
  _sluice "$@"
else
  compdef _sluice sluice
fi
