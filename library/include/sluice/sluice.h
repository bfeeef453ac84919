/* libsluice, the C interface: policies compiled and asked without any privilege, and commands run under a policy.
 *
 *   sluice_error* error = NULL;
 *   sluice_policy* policy = NULL;
 *   if (sluice_policy_from_file("policy.yaml", &policy, &error) != SLUICE_OK) {
 *     fprintf(stderr, "%s\n", sluice_error_message(error));
 *     sluice_error_free(error);
 *   }
 *
 * Rules that hold for every function:
 *
 * - Errors. A sluice_code says what kind of failure it was; with `error` not NULL, *error is set on failure and is the caller's
 * to free, and is left alone on success. A policy's "no" is no error. No C++ exception ever leaves the library.
 * - Owners. What a function gives through a pointer to a handle is the caller's, freed by that type's _free, which takes NULL. A
 *   `const char*` belongs to the handle that it was asked of and lives as long. Arguments are copied: they may go after the call.
 * - Threads. A handle of type sluice_policy, sluice_decision, sluice_error or sluice_text never changes: any number of threads
 * may read it. sluice_options is one thread's at a time. For sluice_run see there.
 * - Bounds. A policy is 1 MiB at most, with 64 included files; docs/limits.md has the rest. SLUICE_EXHAUSTED says that one was
 * met.
 * - Process state. Nothing is written to standard output or error, no signal handler is set, no environment variable changed, and
 * the process is never forked into a copy of itself: sluice_start executes the program `sluice`, which supervises in a process of
 * its own (docs/library.md says why, and what that means for SIGCHLD, descriptors and standard streams).
 * - fork. In a child that the caller forked, a sluice_run is good for sluice_run_free alone, which there closes and kills
 * nothing.
 *
 * ABI. Everything is an opaque handle, a fixed-size integer, or a struct whose first field is its size as the caller was
 * compiled; fields and constants are only ever added at the end. Symbols are versioned (SLUICE_1), the soname is libsluice.so.1.
 */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#define SLUICE_NOEXCEPT noexcept
#else
#define SLUICE_NOEXCEPT
#endif

/* The version of the binary interface that this header describes. */
#define SLUICE_ABI_VERSION 1u

/* That of the library in use: at least SLUICE_ABI_VERSION wherever the program was started at all. */
SLUICE_API uint32_t sluice_abi_version(void) SLUICE_NOEXCEPT;
/* "0.1.0", as `sluice --version` says. */
SLUICE_API const char* sluice_version(void) SLUICE_NOEXCEPT;

/* ---- Errors ---- */

typedef int32_t sluice_code;
enum {
  SLUICE_OK = 0,
  SLUICE_INVALID = 1,     /* input that breaks its own rules: a policy, a question, an option */
  SLUICE_NOT_FOUND = 2,   /* a file, command or rule that is not there */
  SLUICE_PERMISSION = 3,  /* the kernel, or who owns the policy, said no */
  SLUICE_UNSUPPORTED = 4, /* this machine or build lacks a needed feature, named in the message */
  SLUICE_EXHAUSTED = 5,   /* a bound was reached */
  SLUICE_TIMEOUT = 6,     /* a deadline passed */
  SLUICE_IO = 7,          /* a system call failed otherwise */
  SLUICE_PROTOCOL = 8,    /* the supervisor's program answers what this library does not understand */
  SLUICE_INTERNAL = 9,    /* a fault of Sluice's own, out of memory included */
  SLUICE_CONFLICT = 10,   /* another revision of the policy is in force than the one named */
  SLUICE_WIDENS = 11,     /* the policy lets out more than the one in force, or that could not be excluded */
  SLUICE_ENDED = 12,      /* the run has ended */
  SLUICE_FORKED = 13      /* the handle is another process's */
};

typedef struct sluice_error sluice_error;
SLUICE_API sluice_code sluice_error_code(const sluice_error* error) SLUICE_NOEXCEPT;
/* For people. Of a fault in a policy: its place, the line and a caret, over several lines. */
SLUICE_API const char* sluice_error_message(const sluice_error* error) SLUICE_NOEXCEPT;
/* For programs: {"code": "invalid", "error": "…"} and, of a fault in a policy, "file", "line", "column" and "length", which count
 * from 1 and in bytes. */
SLUICE_API const char* sluice_error_json(const sluice_error* error) SLUICE_NOEXCEPT;
SLUICE_API void sluice_error_free(sluice_error* error) SLUICE_NOEXCEPT;

/* A text that a function gave: UTF-8, with a NUL behind it that does not count. */
typedef struct sluice_text sluice_text;
SLUICE_API const char* sluice_text_data(const sluice_text* text) SLUICE_NOEXCEPT;
SLUICE_API size_t sluice_text_size(const sluice_text* text) SLUICE_NOEXCEPT;
SLUICE_API void sluice_text_free(sluice_text* text) SLUICE_NOEXCEPT;

/* ---- Policies. No privilege, no network, no process. ---- */

typedef struct sluice_policy sluice_policy;

/* Reads the file and what it includes, and compiles them. A run of this policy watches those files and follows their changes. */
SLUICE_API sluice_code sluice_policy_from_file(const char* path, sluice_policy** policy, sluice_error** error) SLUICE_NOEXCEPT;
/* Compiles a text, which cannot include files. `name`: what its errors call it; NULL is "policy". */
SLUICE_API sluice_code sluice_policy_from_text(const char* text, size_t size, const char* name, sluice_policy** policy,
                                               sluice_error** error) SLUICE_NOEXCEPT;
/* Equal where the rules are: 64 hexadecimal digits. */
SLUICE_API const char* sluice_policy_digest(const sluice_policy* policy) SLUICE_NOEXCEPT;
SLUICE_API size_t sluice_policy_rules(const sluice_policy* policy) SLUICE_NOEXCEPT;
SLUICE_API void sluice_policy_free(sluice_policy* policy) SLUICE_NOEXCEPT;

/* Who asks what, and when. Set size to sizeof(sluice_question); a field that is NULL is unknown, and an unknown process or
 * address matches no `by` and no `ip` of an allow, and every one of a deny. */
typedef struct sluice_question {
  size_t size;
  const char* question; /* as `sluice explain`: "POST https://api.github.com/x", "git fetch-pack github.com/octo/hello",
                           "connect a.test:443", "tcp a.test:5432", "dns a.test", "ws a.test/s", "grpc a.test pkg.Svc/Get",
                           "mcp tools/call a.test/mcp", "unix /run/x.sock" */
  const char* by; /* the executable, an absolute path as the kernel names it; its digest is read where a rule asks for one */
  const char* ip; /* the address that the name leads to */
  const char* at; /* a date or a timestamp as `until` takes them; NULL is now */
} sluice_question;

typedef struct sluice_decision sluice_decision;
/* Asks the policy. SLUICE_INVALID: the question is not understood. */
SLUICE_API sluice_code sluice_decide(const sluice_policy* policy, const sluice_question* question, sluice_decision** decision,
                                     sluice_error** error) SLUICE_NOEXCEPT;
/* 1 or 0. */
SLUICE_API int32_t sluice_decision_allowed(const sluice_decision* decision) SLUICE_NOEXCEPT;
/* The id of the rule that decided; "" where none did. */
SLUICE_API const char* sluice_decision_rule(const sluice_decision* decision) SLUICE_NOEXCEPT;
/* All of it, as `sluice explain --format json`: reason, rule and its place, what would allow it. */
SLUICE_API const char* sluice_decision_json(const sluice_decision* decision) SLUICE_NOEXCEPT;
SLUICE_API void sluice_decision_free(sluice_decision* decision) SLUICE_NOEXCEPT;

enum {
  SLUICE_EQUAL = 0,        /* the same is let out */
  SLUICE_NARROWED = 1,     /* less */
  SLUICE_WIDENED = 2,      /* more */
  SLUICE_INCOMPARABLE = 3, /* more and less */
  SLUICE_UNKNOWN = 4       /* not decided within the steps: never take it for a yes */
};
/* Proves what `head` lets out that `base` does not. `steps` bounds the search; 0 is 4,000,000, some seconds. The proof has every
 * gain and loss with a witness, as `sluice prove --format json`; `proof` may be NULL. */
SLUICE_API sluice_code sluice_prove(const sluice_policy* base, const sluice_policy* head, uint64_t steps, int32_t* verdict,
                                    sluice_text** proof, sluice_error** error) SLUICE_NOEXCEPT;

/* ---- What to run ---- */

typedef struct sluice_options sluice_options;
/* NULL: out of memory. */
SLUICE_API sluice_options* sluice_options_new(void) SLUICE_NOEXCEPT;
SLUICE_API void sluice_options_free(sluice_options* options) SLUICE_NOEXCEPT;

/* The command and its arguments, NULL behind the last. The first is looked up in PATH as a shell does. */
SLUICE_API sluice_code sluice_options_set_command(sluice_options* options, const char* const* argv,
                                                  sluice_error** error) SLUICE_NOEXCEPT;
/* The policy may be freed afterwards. */
SLUICE_API sluice_code sluice_options_set_policy(sluice_options* options, const sluice_policy* policy,
                                                 sluice_error** error) SLUICE_NOEXCEPT;

typedef int32_t sluice_option;
enum {
  SLUICE_WORK_DIRECTORY = 1, /* --cwd: readable and writable to the command; else the caller's current one */
  SLUICE_READ_WRITE = 2,     /* --rw, one more tree each time */
  SLUICE_READ_ONLY = 3,      /* --ro, one more tree each time */
  SLUICE_ENVIRONMENT =
      4,                 /* --env: NAME or NAME=VALUE, one more each time; the rest is an allowlist of the caller's environment */
  SLUICE_TIME_LIMIT = 5, /* --timeout: "250ms", "30s", "5m", "1h" */
  SLUICE_NAME = 6,       /* --name, in every record */
  SLUICE_LABEL = 7,      /* --label: KEY=VALUE, in every record, one more each time */
  SLUICE_AUDIT_FILE = 8, /* --audit: JSON Lines, appended */
  SLUICE_RESOLVER = 9,   /* --resolver, one more each time */
  SLUICE_STUB_DOMAIN = 10,    /* --stub-domain, one more each time */
  SLUICE_UPSTREAM_CA = 11,    /* --upstream-ca: a PEM file, one more each time */
  SLUICE_CA_CERTIFICATE = 12, /* --ca-cert */
  SLUICE_CA_KEY = 13,         /* --ca-key */
  SLUICE_VIA = 14,            /* --via: the upstream proxy */
  SLUICE_CONTROL = 15,        /* --control: a UNIX socket of the same administration, for others; one more each time */
  SLUICE_PROGRAM = 16,        /* the `sluice` program; else the one installed with this library. Its version must be the same */
  /* The launch contract (docs/launch.md). */
  SLUICE_WORKSPACE = 17,           /* --workspace: a prepared folder, writable, where the command starts */
  SLUICE_ENVIRONMENT_INHERIT = 18, /* --env-inherit: "usual" or "none" */
  SLUICE_UNSAFE_ENVIRONMENT = 19,  /* --unsafe-env: as SLUICE_ENVIRONMENT, for what looks like a credential */
  SLUICE_MEMORY_LIMIT = 20,        /* --max-memory: "512MiB", "2GiB" */
  SLUICE_PROCESS_LIMIT = 21,       /* --max-processes: "256" */
  SLUICE_OPEN_FILE_LIMIT = 22,     /* --max-open-files: "1024" */
  SLUICE_OUTPUT_LIMIT = 23,        /* --max-output: "64MiB" to standard output and error together */
  SLUICE_TRANSCRIPT = 24,          /* --transcript: a file that gets what the command prints */
  SLUICE_RESULT_FILE = 25,         /* --result: a file that says as JSON what the run came to */
  SLUICE_PUBLISH = 26,             /* --publish: "127.0.0.1:8080:8080", one more each time; sluice_run_status has the ports */
  SLUICE_ON_DISCONNECT = 27,       /* --on-disconnect: "kill" or "freeze" the run when this process has ended */
  SLUICE_VIA_AUTHORIZATION = 28,   /* --via-auth */
  SLUICE_VIA_CA = 29,              /* --via-ca */
  SLUICE_VIA_EXCEPT = 30,          /* --via-except, one more each time */
  /* "true" or "false", the default. */
  SLUICE_FAIL_ON_DENY = 31,          /* --fail-on-deny: exit code 3 if anything was denied */
  SLUICE_KILL_ON_DENY = 32,          /* --kill-on-deny: the first denial ends the run */
  SLUICE_ALLOW_NESTED = 33,          /* --allow-nested: serve `sluice run` in the sandbox */
  SLUICE_ALLOW_USER_NAMESPACES = 34, /* --allow-user-namespaces */
  SLUICE_QUIET = 35,                 /* --quiet: the log callback gets denials, warnings and errors */
  SLUICE_ALLOW_CONTAINERS = 36       /* --allow-containers */
};
/* SLUICE_INVALID: no such option, or no value. What is wrong with a value is told by sluice_start. */
SLUICE_API sluice_code sluice_options_set(sluice_options* options, sluice_option option, const char* value,
                                          sluice_error** error) SLUICE_NOEXCEPT;

/* The command's standard streams, duplicated at once: files, pipes, sockets or terminals, but no files of memory (memfd_create),
 * for which Landlock has no rule. -1: the caller's own at the time of sluice_start. */
SLUICE_API sluice_code sluice_options_set_streams(sluice_options* options, int input, int output, int error_output,
                                                  sluice_error** error) SLUICE_NOEXCEPT;

/* What happens, as it happens. Called on the thread that dispatches (see sluice_run), one at a time, in order: with the caller's
 * loop never during sluice_start, with the library's own perhaps before that has returned. Texts end with a NUL that does not
 * count and live for the call. A callback may call sluice_run_state, _stop, _status, _set_policy and _request. It must not
 * dispatch or wait (SLUICE_INVALID); where it frees the run, no callback comes after it, the run is killed and freed when it
 * returns, and the dispatch or wait that it was called from says SLUICE_ENDED. It must not throw. Set size to
 * sizeof(sluice_callbacks). */
typedef struct sluice_callbacks {
  size_t size;
  void* context;                                                /* handed to each */
  void (*record)(void* context, const char* json, size_t size); /* a decision, as docs/audit.md has it; NULL: not wanted */
  void (*log)(void* context, const char* line, size_t size);    /* what `sluice run` says on standard error, denials as well */
  void (*ended)(void* context);                                 /* the run has ended; nothing comes after it */
  int32_t exchanges;                                            /* 1: records of finished exchanges too */
} sluice_callbacks;
SLUICE_API sluice_code sluice_options_set_callbacks(sluice_options* options, const sluice_callbacks* callbacks,
                                                    sluice_error** error) SLUICE_NOEXCEPT;

/* Who dispatches. */
enum {
  SLUICE_LOOP_CALLER = 0, /* whoever calls sluice_run_dispatch or sluice_run_wait; the default */
  SLUICE_LOOP_OWN = 1     /* a thread of the library's own, with every signal blocked */
};
SLUICE_API sluice_code sluice_options_set_loop(sluice_options* options, int32_t loop, sluice_error** error) SLUICE_NOEXCEPT;

/* ---- Runs ---- */

/* A command under a policy, and the process that supervises it. Any thread may call sluice_run_state, _status, _request, _stop,
 * _reload and _set_policy at any time. _dispatch and _wait are one thread's at a time. _free is for when nobody calls the others.
 */
typedef struct sluice_run sluice_run;

/* Starts the supervisor, builds the sandbox and starts the command: blocks until it runs, or does not (60 s at most, usually some
 * tens of milliseconds). SLUICE_INVALID, _NOT_FOUND, _PERMISSION (the command), _UNSUPPORTED (this machine), SLUICE_INTERNAL: the
 * message is the supervisor's own. Should this process end, the run is killed. */
SLUICE_API sluice_code sluice_start(const sluice_options* options, sluice_run** run, sluice_error** error) SLUICE_NOEXCEPT;

/* For poll, select or epoll: readable when there is something to dispatch, never again once the run has ended. Not to be read or
 * closed. -1 with SLUICE_LOOP_OWN. */
SLUICE_API int sluice_run_fd(const sluice_run* run) SLUICE_NOEXCEPT;
/* Does what there is to do now, callbacks included, and never waits for anything. */
SLUICE_API sluice_code sluice_run_dispatch(sluice_run* run, sluice_error** error) SLUICE_NOEXCEPT;

/* What ended a run. */
enum {
  SLUICE_BY_COMMAND = 0,    /* its command, or a signal that came to that */
  SLUICE_BY_TIME = 1,       /* SLUICE_TIME_LIMIT */
  SLUICE_BY_OUTPUT = 2,     /* SLUICE_OUTPUT_LIMIT */
  SLUICE_BY_MEMORY = 3,     /* SLUICE_MEMORY_LIMIT, where a control group holds it */
  SLUICE_BY_POLICY = 4,     /* a denial, with SLUICE_KILL_ON_DENY */
  SLUICE_BY_DISCONNECT = 5, /* its launcher was gone */
  SLUICE_BY_STOP = 6,       /* somebody stopped it */
  SLUICE_BY_UNKNOWN = -1    /* the supervisor was killed, or is newer than this library */
};

/* How a run ended. Set size to sizeof(sluice_result). */
typedef struct sluice_result {
  size_t size;
  int32_t exit_code; /* of `sluice run`: the command's own, 128 + N when signal N ended it; 5: the supervisor failed */
  int32_t signal;    /* that ended the command; 0: none */
  int32_t timed_out; /* 1: SLUICE_TIME_LIMIT passed */
  int32_t complete;  /* 1: the supervisor said how it ended; 0: it was killed, and the run with it */
  uint64_t allowed;  /* decisions */
  uint64_t denied;
  uint64_t lost_records; /* that the record callback missed, because it was more than 1 MiB behind; the audit file has them */
  int32_t ended_by;      /* SLUICE_BY_COMMAND and so on */
} sluice_result;
/* Dispatches until the run has ended, or for `timeout_ms` at most (-1: for ever; SLUICE_TIMEOUT). `result` may be NULL. */
SLUICE_API sluice_code sluice_run_wait(sluice_run* run, int64_t timeout_ms, sluice_result* result,
                                       sluice_error** error) SLUICE_NOEXCEPT;

enum { SLUICE_RUNNING = 1, SLUICE_RUN_ENDED = 2 };
/* As of the last dispatch. */
SLUICE_API int32_t sluice_run_state(const sluice_run* run) SLUICE_NOEXCEPT;

/* SIGTERM to the command, and `grace_ms` (60,000 at most) later SIGKILL to all it started. Does not wait for it. */
SLUICE_API sluice_code sluice_run_stop(sluice_run* run, uint32_t grace_ms, sluice_error** error) SLUICE_NOEXCEPT;

enum {
  SLUICE_PROVE = 1,        /* only compare with the policy in force, and answer with the proof */
  SLUICE_APPLY_NARROW = 2, /* prove, and put it in force where it is proved to let out no more: else SLUICE_WIDENS */
  SLUICE_APPLY_ANYWAY = 4  /* prove, and put it in force whatever the verdict */
};
/* Puts another policy in force: whole, or not at all. Flows that it no longer allows are cut within 100 ms. flags 0: without a
 * proof. if_revision 0: whatever is in force; else SLUICE_CONFLICT unless that is. `revision` (the one in force now) and `answer`
 * (JSON, as docs/admin-api.md has it) may be NULL. It may use only credentials and upstream proxies of the policy that the run
 * began with. */
SLUICE_API sluice_code sluice_run_set_policy(sluice_run* run, const char* text, size_t size, uint32_t flags, uint64_t if_revision,
                                             uint64_t* revision, sluice_text** answer, sluice_error** error) SLUICE_NOEXCEPT;
/* Reads the policy's files again, as SIGHUP does: what comes of it is a log line. A run follows their changes by itself. */
SLUICE_API sluice_code sluice_run_reload(sluice_run* run, sluice_error** error) SLUICE_NOEXCEPT;
/* GET /v1/status: JSON. */
SLUICE_API sluice_code sluice_run_status(sluice_run* run, sluice_text** status, sluice_error** error) SLUICE_NOEXCEPT;
/* Any request of docs/admin-api.md: "POST", "/v1/explain", a body. if_revision as above. Blocks for 30 s at most. `http_status`
 * and `answer` are the supervisor's, whatever they say; an error is that there was no answer. */
SLUICE_API sluice_code sluice_run_request(sluice_run* run, const char* method, const char* target, const char* body, size_t size,
                                          uint64_t if_revision, int32_t* http_status, sluice_text** answer,
                                          sluice_error** error) SLUICE_NOEXCEPT;

/* Kills the run where it has not ended, and forgets it. */
SLUICE_API void sluice_run_free(sluice_run* run) SLUICE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
