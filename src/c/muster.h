#ifndef MUSTER_H
#define MUSTER_H
#include <stddef.h>

/// Kernel code generation from C (C99 on), and from every language that can call C: text in, text out.
///
/// Errors. A function that can fail returns a `muster_status`. Each such call also sets the calling thread's last error:
/// what went wrong, or MUSTER_NO_ERROR and an empty message. No C++ exception leaves any function.
/// Strings. Those passed in are read during the call only and are UTF-8; those without a size end at their NUL. Who owns a
/// returned one is said at its function.
/// Threads. All functions may be called from any thread at the same time, but a generator by one thread at a time.
#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MUSTER_EXPORT __attribute__((visibility("default")))
#else
#define MUSTER_EXPORT
#endif

/// What a call came to: the exit statuses of the command line tool.
enum muster_status {
  MUSTER_OK = 0,
  MUSTER_ERROR = 1,                 ///< the last error says what
  MUSTER_USAGE = 2,                 ///< the call itself is wrong: a null pointer where there must be none
  MUSTER_IMPLEMENTATION_MISSING = 3 ///< the backend does not implement an operation that the document uses
};

/// What went wrong. Values stay as they are; later versions may add some.
enum muster_error_kind {
  MUSTER_NO_ERROR = 0,
  MUSTER_INVALID_ARGUMENT = 1,               ///< with MUSTER_USAGE
  MUSTER_BACKEND_IMPLEMENTATION_MISSING = 2, ///< with MUSTER_IMPLEMENTATION_MISSING; all that follow with MUSTER_ERROR
  MUSTER_BACKEND_UNSUPPORTED = 3,            ///< the backend has the operation, but this use of it does not work there
  MUSTER_UNKNOWN_BACKEND = 4,
  MUSTER_BACKEND_NOT_BUILT = 5,
  MUSTER_UNKNOWN_OPERATION = 6,
  MUSTER_DEVICE_IR_ERROR = 7, ///< the document or the config cannot be read; the message shows the place
  MUSTER_OUT_OF_MEMORY = 8,
  MUSTER_OTHER_ERROR = 9
};

/// The library's version, "MAJOR.MINOR.PATCH". A constant: never freed, never null. Cannot fail.
MUSTER_EXPORT const char* muster_version(void);

/// How many backends there are. The same for the whole life of the process. Cannot fail.
MUSTER_EXPORT size_t muster_backend_count(void);
/// The name of a backend, by its index. A constant, never freed; null from `muster_backend_count()` on.
MUSTER_EXPORT const char* muster_backend_name(size_t index);

/// What the calling thread's last call that returned a status came to.
MUSTER_EXPORT enum muster_error_kind muster_last_error_kind(void);
/// The same in words, as the command line tool would print it, without a line break at the end; "" where there was no error.
/// Owned by the library, never null, valid until this thread's next call that returns a status.
MUSTER_EXPORT const char* muster_last_error_message(void);

/// Releases a string that one of these functions handed over. Null is allowed.
MUSTER_EXPORT void muster_free(char* string);

/// Generates one kernel's source.
/// `text`, `size`: the device IR document. `file`: what messages call it, or null ("<text>").
/// `backend`: a backend's name.
/// `config`: a JSON object of tuning choices that override those of the document, key by key; null: the document's own.
/// `*source`: the source, NUL-terminated, to be released with `muster_free`; null after an error. `*source_size`: its bytes
/// without the NUL; a null `source_size` is allowed. The same input gives the same bytes, those of `muster codegen`.
MUSTER_EXPORT enum muster_status muster_codegen(const char* text, size_t size, const char* file, const char* backend, const char* config,
                                                char** source, size_t* source_size);

/// A document that was read once, to generate source from it many times: for an autotuner.
typedef struct muster_generator muster_generator; // NOLINT(modernize-use-using): C has no other way

/// Reads and verifies a document; `text`, `size` and `file` as in `muster_codegen`.
/// `*generator`: to be released with `muster_generator_free`; null after an error.
MUSTER_EXPORT enum muster_status muster_generator_new(const char* text, size_t size, const char* file, muster_generator** generator);

/// Generates the kernel for a backend and a config; all arguments and results as in `muster_codegen`, and what comes out
/// depends on no earlier call. After an error the generator is as usable as before.
MUSTER_EXPORT enum muster_status muster_generator_codegen(muster_generator* generator, const char* backend, const char* config,
                                                          char** source, size_t* source_size);

/// Notes on the generator's last successful `muster_generator_codegen`: hints that were not honoured, unknown config keys; one
/// a line, "" where there are none. Owned by the generator, valid until its next call. Null only for a null generator.
MUSTER_EXPORT const char* muster_generator_notes(const muster_generator* generator);

/// Releases a generator, with its notes; the sources that it handed over stay. Null is allowed.
MUSTER_EXPORT void muster_generator_free(muster_generator* generator);

#ifdef __cplusplus
}
#endif
#endif
