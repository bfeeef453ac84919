# fish completion for sluice; written by `sluice completion fish`.
function __sluice_presets
    command sluice preset list 2>/dev/null | string replace -r '[@ ].*' '' | sort -u
end
complete -c sluice -f
complete -c sluice -n __fish_use_subcommand -a run -d 'Run a program under a policy'
complete -c sluice -n __fish_use_subcommand -a proxy -d 'Serve an explicit proxy under a policy'
complete -c sluice -n __fish_use_subcommand -a sidecar -d 'Fence every other process of this network namespace'
complete -c sluice -n __fish_use_subcommand -a agent -d 'Supervise the containers of runtimes'
complete -c sluice -n __fish_use_subcommand -a oci-seccomp -d 'Print the seccomp profile for the agent'
complete -c sluice -n __fish_use_subcommand -a health -d 'Ask a running sidecar whether it is ready'
complete -c sluice -n __fish_use_subcommand -a doctor -d 'Find out what this machine can enforce'
complete -c sluice -n __fish_use_subcommand -a lint -d 'Check policy files'
complete -c sluice -n __fish_use_subcommand -a prove -d 'Say what a policy change lets out'
complete -c sluice -n __fish_use_subcommand -a fmt -d 'Rewrite policy files in their canonical form'
complete -c sluice -n __fish_use_subcommand -a test -d 'Run unit tests of policies'
complete -c sluice -n __fish_use_subcommand -a explain -d 'Say what a policy does with one request'
complete -c sluice -n __fish_use_subcommand -a preset -d 'Show the rule sets that ship'
complete -c sluice -n __fish_use_subcommand -a import -d "Print another tool's policy as a native one"
complete -c sluice -n __fish_use_subcommand -a completion -d 'Print a completion script'
complete -c sluice -n __fish_use_subcommand -l version -d 'Show the version'
complete -c sluice -l help -d 'Show help'
# What every command that serves a policy takes.
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l policy -r -F -d 'Policy file'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l allow -x -d 'One more rule'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l preset -x -a '(__sluice_presets)' -d 'Rules of a preset'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l audit -r -F -d 'Write records here, as JSON Lines'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l resolver -x -d 'Upstream resolver'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l stub-domain -x -d 'Servers of its own for a domain'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l upstream-ca -r -F -d 'Trust this authority upstream'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l ca-cert -r -F -d 'Inspect with this authority'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l ca-key -r -F -d 'Key of that authority'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l mirror-certificates -d 'Show clients the names of upstream certificates'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l via -x -d 'Upstream proxy'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l via-auth -x -d 'Where the login for that proxy is'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l via-ca -r -F -d 'Roots for that proxy'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l via-except -x -d 'Reached without that proxy'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l name -x -d 'Name of the sandbox in records'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l label -x -d 'Label in records, KEY=VALUE'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l quiet -d 'Say only what went wrong'
complete -c sluice -n '__fish_seen_subcommand_from run proxy sidecar agent' -l verbose -d 'Say more'
complete -c sluice -n '__fish_seen_subcommand_from run' -l rw -x -a '(__fish_complete_directories)' -d 'Folder the program may write'
complete -c sluice -n '__fish_seen_subcommand_from run' -l ro -x -a '(__fish_complete_directories)' -d 'Folder the program may read'
complete -c sluice -n '__fish_seen_subcommand_from run' -l env -x -a '(set -nx)' -d 'Pass or set a variable'
complete -c sluice -n '__fish_seen_subcommand_from run' -l cwd -x -a '(__fish_complete_directories)' -d 'Start the program here'
complete -c sluice -n '__fish_seen_subcommand_from run' -l timeout -x -d 'End the program after this time'
complete -c sluice -n '__fish_seen_subcommand_from run' -l unsafe-env -x -a '(set -nx)' -d 'Pass a variable that looks like a credential'
complete -c sluice -n '__fish_seen_subcommand_from run' -l env-inherit -x -a 'usual none' -d 'What is passed unasked'
complete -c sluice -n '__fish_seen_subcommand_from run' -l workspace -x -a '(__fish_complete_directories)' -d 'Prepared folder the program may write'
complete -c sluice -n '__fish_seen_subcommand_from run' -l spec -r -F -d 'Read the launch from this file'
complete -c sluice -n '__fish_seen_subcommand_from run' -l max-memory -x -d 'Memory of the run'
complete -c sluice -n '__fish_seen_subcommand_from run' -l max-processes -x -d 'Processes of the run'
complete -c sluice -n '__fish_seen_subcommand_from run' -l max-open-files -x -d 'Descriptors of each process'
complete -c sluice -n '__fish_seen_subcommand_from run' -l max-output -x -d 'End the program when it has written this much'
complete -c sluice -n '__fish_seen_subcommand_from run' -l publish -x -d 'Lead a port of this machine to one of the sandbox'
complete -c sluice -n '__fish_seen_subcommand_from run' -l transcript -r -F -d 'Write what the program prints here, too'
complete -c sluice -n '__fish_seen_subcommand_from run' -l result -r -F -d 'Write what the run came to here'
complete -c sluice -n '__fish_seen_subcommand_from run' -l lifeline -x -d 'Descriptor whose other end the launcher holds'
complete -c sluice -n '__fish_seen_subcommand_from run' -l on-disconnect -x -a 'kill freeze' -d 'What becomes of a run without its launcher'
complete -c sluice -n '__fish_seen_subcommand_from run' -l pid-namespace -d 'A process namespace of its own, always so'
complete -c sluice -n '__fish_seen_subcommand_from run' -l allow-user-namespaces -d 'Let the program make namespaces'
complete -c sluice -n '__fish_seen_subcommand_from run' -l allow-containers -d 'Let the program run containers'
complete -c sluice -n '__fish_seen_subcommand_from run' -l allow-nested -d 'Serve sluice run in the sandbox'
complete -c sluice -n '__fish_seen_subcommand_from run' -l kill-on-deny -d 'End the run at its first denial'
complete -c sluice -n '__fish_seen_subcommand_from run' -l control -r -d 'Serve the administration on this socket'
complete -c sluice -n '__fish_seen_subcommand_from run' -l await-hold -d 'Start once somebody holds the run'
complete -c sluice -n '__fish_seen_subcommand_from run' -l policy-fd -x -d 'Read the policy from this descriptor'
complete -c sluice -n '__fish_seen_subcommand_from run' -l log-fd -x -d 'Write own lines to this descriptor'
complete -c sluice -n '__fish_seen_subcommand_from run' -l fail-on-deny -d 'Exit 3 when something was denied'
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l listen -x -d "Where clients connect"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l ca-out -r -F -d "Write the authority's certificate here"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l bundle-out -r -F -d "Write the system's roots and that certificate here"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l print-env -d "Print the variables that clients need"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l tokens -r -F -d "Names and hashed tokens of clients"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l listen-tls-cert -r -F -d "Speak TLS to clients"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l listen-tls-key -r -F -d "Its key"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l client-ca -r -F -d "Serve only clients with a certificate of these"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l proxy-protocol -x -a required -d "Want a PROXY header"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l proxy-protocol-from -x -d "Whose headers are believed"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l allow-open -d "Listen beyond this machine without asking who it is"
complete -c sluice -n '__fish_seen_subcommand_from proxy' -l drain -x -d "Let open connections end for this long"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l ca-out -r -F -d "Write the authority's certificate here"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l bundle-out -r -F -d "Write the system's roots and that certificate here"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l processes -x -a 'auto seen unseen' -d "Whether other processes can be told apart"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l no-inbound -d "Drop new connections from outside"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l host-network -d "Fence a machine's own network"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l unsafe-workload-rights -d "Be ready beside a workload that could go around the fence"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l proxy-port -x -d "Port that TCP is redirected to"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l dns-port -x -d "Port that lookups are redirected to"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l dry-run -d "Print the fence's rules and end"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l drain -x -d "Let open connections end for this long"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l admin -x -d "Serve the admin API here"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l admin-token -r -F -d "Bearer token of the admin API"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l admin-open -d "Let it listen beyond loopback"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l health -x -d "Serve health and metrics here"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l state -r -F -d "Keep the last policy and names here"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l policy-url -x -d "Fetch the policy here"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l policy-key -r -F -d "Keys that sign it"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l policy-poll -x -d "How often it is asked for"
complete -c sluice -n '__fish_seen_subcommand_from sidecar' -l compat -x -a opensandbox -d "Take the policy as another sidecar does"
complete -c sluice -n '__fish_seen_subcommand_from doctor' -l mode -x -a 'run sidecar proxy agent' -d 'What is to run here'
complete -c sluice -n '__fish_seen_subcommand_from doctor' -l format -x -a 'text json' -d 'How to print it'
complete -c sluice -n '__fish_seen_subcommand_from doctor' -l no-live -d 'Start no programs'
complete -c sluice -n '__fish_seen_subcommand_from agent' -l listen -r -F -d "Socket that runtimes connect to"
complete -c sluice -n '__fish_seen_subcommand_from agent' -l policy-dir -r -F -d "Policies to choose from"
complete -c sluice -n '__fish_seen_subcommand_from agent' -l ca-out -r -F -d "Write the authority's certificate here"
complete -c sluice -n '__fish_seen_subcommand_from agent' -l bundle-out -r -F -d "Write the system's roots and that certificate here"
complete -c sluice -n '__fish_seen_subcommand_from agent' -l on-restart -x -a 'kill freeze' -d "What becomes of containers without a supervisor"
complete -c sluice -n '__fish_seen_subcommand_from agent' -l peer -x -d "User whose runtimes are served"
complete -c sluice -n '__fish_seen_subcommand_from agent' -l annotation -x -d "Annotation that records show"
complete -c sluice -n '__fish_seen_subcommand_from agent' -l state-dir -r -F -d "Where running containers are recorded"
complete -c sluice -n '__fish_seen_subcommand_from oci-seccomp' -l agent -r -F -d "The agent's socket"
complete -c sluice -n '__fish_seen_subcommand_from oci-seccomp' -l form -x -a 'config docker' -d "Whose form the profile has"
complete -c sluice -n '__fish_seen_subcommand_from oci-seccomp' -l metadata -x -d "Text that the agent gets"
complete -c sluice -n '__fish_seen_subcommand_from oci-seccomp' -l wait-killable -d "No handled signal interrupts a taken call"
complete -c sluice -n '__fish_seen_subcommand_from oci-seccomp' -l base -r -F -d "Profile that lists what is allowed"
complete -c sluice -n '__fish_seen_subcommand_from health' -l path -x -a '/readyz /healthz' -d 'What is asked'
complete -c sluice -n '__fish_seen_subcommand_from health' -l timeout -x -d 'For the whole question'
complete -c sluice -n '__fish_seen_subcommand_from lint' -F
complete -c sluice -n '__fish_seen_subcommand_from lint' -l format -x -a 'text json sarif github markdown' -d 'Output'
complete -c sluice -n '__fish_seen_subcommand_from lint' -l fail-on -x -a 'note warning error never' -d 'Exit 1 from this severity on'
complete -c sluice -n '__fish_seen_subcommand_from prove' -F
complete -c sluice -n '__fish_seen_subcommand_from prove' -l format -x -a 'text json sarif github markdown' -d 'Output'
complete -c sluice -n '__fish_seen_subcommand_from prove' -l base-git -x -a "(git for-each-ref --format='%(refname:short)' 2>/dev/null)" -d "Read each file's base from this revision"
complete -c sluice -n '__fish_seen_subcommand_from prove' -l never -x -d 'Nothing of this may be reached'
complete -c sluice -n '__fish_seen_subcommand_from prove' -l always -x -d 'All of this must be reached'
complete -c sluice -n '__fish_seen_subcommand_from prove' -l accept -r -F -d 'Regions accepted before'
complete -c sluice -n '__fish_seen_subcommand_from prove' -l exe-manifest -r -F -d 'Executables that exist'
complete -c sluice -n '__fish_seen_subcommand_from prove' -l at -x -d 'Compare from this time on'
complete -c sluice -n '__fish_seen_subcommand_from prove' -l limit -x -d 'Steps before the answer is unknown'
complete -c sluice -n '__fish_seen_subcommand_from fmt' -F
complete -c sluice -n '__fish_seen_subcommand_from fmt' -l check -d 'Change nothing, name what would change'
complete -c sluice -n '__fish_seen_subcommand_from fmt' -l stdout -d 'Print the result'
complete -c sluice -n '__fish_seen_subcommand_from test' -F
complete -c sluice -n '__fish_seen_subcommand_from test' -l min-coverage -x -d 'Percent of the rules that must decide a test'
complete -c sluice -n '__fish_seen_subcommand_from test' -l format -x -a 'text json' -d 'Output'
complete -c sluice -n '__fish_seen_subcommand_from explain' -F
complete -c sluice -n '__fish_seen_subcommand_from explain' -l format -x -a 'text json' -d 'Output'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l by -r -F -d 'Executable that asks'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l under -r -F -d 'Executable of an ancestor'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l header -x -d 'Header field, NAME: VALUE'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l ip -x -d 'Address dialled'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l at -x -d 'Time of the request'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l field -x -d 'Root field of GraphQL'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l operation -x -d 'Name of the operation'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l tool -x -d 'Tool of MCP'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l ref -x -d 'Ref of a push'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l ref-change -x -a 'create update delete' -d 'How it changes'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l json -x -d 'Value in a body, POINTER=VALUE'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l body -r -F -d 'Body of the request'
complete -c sluice -n '__fish_seen_subcommand_from explain' -l content-type -x -d 'Type of that body'
complete -c sluice -n '__fish_seen_subcommand_from preset; and not __fish_seen_subcommand_from list show' -a 'list show'
complete -c sluice -n '__fish_seen_subcommand_from preset; and __fish_seen_subcommand_from show' -a '(__sluice_presets)'
complete -c sluice -n '__fish_seen_subcommand_from preset' -l set -x -d 'Value of a parameter'
complete -c sluice -n '__fish_seen_subcommand_from preset' -l format -x -a 'text json' -d 'Output'
complete -c sluice -n '__fish_seen_subcommand_from import' -F
complete -c sluice -n '__fish_seen_subcommand_from import' -l from -x -a 'openshell sandbox-runtime opensandbox gh-aw-firewall harden-runner smokescreen cilium' -d 'Whose policy it is'
complete -c sluice -n '__fish_seen_subcommand_from import' -l only -x -d 'The service or job'
complete -c sluice -n '__fish_seen_subcommand_from import' -l format -x -a 'text json' -d 'Output'
complete -c sluice -n '__fish_seen_subcommand_from import' -l verbose -d 'Remarks on standard error too'
complete -c sluice -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'
