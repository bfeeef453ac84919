/* Runs a command under a policy with libsluice, and prints each decision as it is made. The library dispatches on a thread of its
 * own.
 *
 *   cc run_under.c -o run_under $(pkg-config --cflags --libs sluice)
 *   ./run_under policy.yaml [--ask QUESTION] [--upstream-ca FILE] -- curl https://api.example.com/
 */
#include <sluice/sluice.h>
#include <stdio.h>
#include <string.h>

/* A policy's fault comes with its place, its line and a caret. */
static int fail(sluice_error* error) {
  fprintf(stderr, "run_under: %s\n", sluice_error_message(error));
  sluice_error_free(error);
  return 2;
}

/* On the library's thread, one at a time. */
static void print_record(void* context, const char* json, size_t size) {
  (void)context;
  fprintf(stderr, "record %.*s\n", (int)size, json);
}

static int ask(const sluice_policy* policy, const char* text) {
  const sluice_question question = {.size = sizeof question, .question = text};
  sluice_decision* decision = NULL;
  sluice_error* error = NULL;
  if (sluice_decide(policy, &question, &decision, &error) != SLUICE_OK) return fail(error);
  printf("%s: %s\n", text, sluice_decision_allowed(decision) ? "allowed" : "denied");
  sluice_decision_free(decision);
  return 0;
}

static int run(const sluice_policy* policy, sluice_options* options, char** command) {
  const sluice_callbacks callbacks = {.size = sizeof callbacks, .record = print_record};
  sluice_run* started = NULL;
  sluice_error* error = NULL;
  if (sluice_options_set_policy(options, policy, &error) != SLUICE_OK ||
      sluice_options_set_command(options, (const char* const*)command, &error) != SLUICE_OK ||
      sluice_options_set_callbacks(options, &callbacks, &error) != SLUICE_OK ||
      sluice_options_set_loop(options, SLUICE_LOOP_OWN, &error) != SLUICE_OK ||
      sluice_start(options, &started, &error) != SLUICE_OK)
    return fail(error);
  sluice_result result = {.size = sizeof result};
  const sluice_code waited = sluice_run_wait(started, -1, &result, &error);
  sluice_run_free(started);
  if (waited != SLUICE_OK) return fail(error);
  printf("exit %d, %llu allowed, %llu denied\n", (int)result.exit_code, (unsigned long long)result.allowed,
         (unsigned long long)result.denied);
  return result.exit_code;
}

static int usage(void) {
  fprintf(stderr,
          "usage: run_under POLICY [--ask QUESTION] [--upstream-ca FILE] -- COMMAND...\n"
          "       run_under POLICY --ask QUESTION\n");
  return 2;
}

int main(int argc, char** argv) {
  sluice_error* error = NULL;
  sluice_policy* policy = NULL;
  sluice_options* options = sluice_options_new();
  int code = 0;
  int asked = 0;
  int i = 2;
  if (argc < 2 || options == NULL) return usage();
  if (sluice_policy_from_file(argv[1], &policy, &error) != SLUICE_OK) code = fail(error);
  for (; code == 0 && i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
    if (strcmp(argv[i], "--ask") == 0) {
      code = ask(policy, argv[i + 1]);
      asked = 1;
    } else if (strcmp(argv[i], "--upstream-ca") != 0) {
      code = usage();
    } else if (sluice_options_set(options, SLUICE_UPSTREAM_CA, argv[i + 1], &error) != SLUICE_OK) {
      code = fail(error);
    }
  }
  fflush(stdout);
  if (code == 0 && i + 1 < argc)
    code = run(policy, options, argv + i + 1);
  else if (code == 0 && (i < argc || !asked))
    code = usage();
  sluice_options_free(options);
  sluice_policy_free(policy);
  return code;
}
