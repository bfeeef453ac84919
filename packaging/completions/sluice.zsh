#compdef sluice
# zsh completion for sluice; written by `sluice completion zsh`.
_sluice() {
  local state line
  local -a commands
  commands=(
    'run:run a program under a policy'
    'lint:check policy files'
    'explain:say what a policy does with one request'
    'preset:show the rule sets that ship'
    "import:print another tool's policy as a native one"
    'completion:print a completion script'
  )
  _arguments -C '(- *)--help[show help]' '(- *)--version[show the version]' '1: :->command' '*:: :->arguments'
  case $state in
    command) _describe command commands ;;
    arguments)
      case $line[1] in
        run)
          _arguments \
            '--policy[policy file]:file:_files' \
            '*--allow[one more rule]:rule:' \
            '*--preset[rules of a preset]:preset:' \
            '--audit[write records here, as JSON Lines]:file:_files' \
            '*--resolver[upstream resolver]:address:' \
            '*--upstream-ca[trust this authority upstream]:file:_files' \
            '*--rw[folder the program may write]:folder:_files -/' \
            '*--ro[folder the program may read]:folder:_files -/' \
            '*--env[pass or set a variable]:name:_parameters -g "*export*"' \
            '--cwd[start the program here]:folder:_files -/' \
            '--name[name of the sandbox in records]:name:' \
            '*--label[label in records]:key=value:' \
            '--timeout[end the program after this time]:duration:' \
            '--fail-on-deny[exit 3 when something was denied]' \
            '--quiet[say only what went wrong]' \
            '--verbose[say more]' \
            '(- *)--help[show help]' \
            '(-)1:program: _command_names -e' \
            '*::arguments: _normal'
          ;;
        lint) _arguments '--format[output]:format:(text json)' '(- *)--help[show help]' '*:policy:_files' ;;
        explain)
          _arguments '--by[executable that asks]:file:_files' '--ip[address dialled]:address:' '--at[time of the request]:time:' \
            '--format[output]:format:(text json)' '(- *)--help[show help]' '1:policy:_files' '2:request:'
          ;;
        preset)
          _arguments '*--set[value of a parameter]:parameter=value:' '--format[output]:format:(text json)' \
            '(- *)--help[show help]' '1:what:(list show)' '2:preset:'
          ;;
        import)
          _arguments '--from[whose policy it is]:kind:(openshell sandbox-runtime opensandbox gh-aw-firewall harden-runner smokescreen cilium)' \
            '--only[the service or job]:name:' '--format[output]:format:(text json)' '--verbose[remarks on standard error too]' \
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
