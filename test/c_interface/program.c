/* `program FILE BACKEND [CONFIG]` is `muster codegen` in C99: the same bytes, messages and exit status.
   Without arguments it checks what the header promises and only a C program can see. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "muster.h"

#define EXPECT(condition)                                                                                                                  \
  do {                                                                                                                                     \
    if (!(condition)) {                                                                                                                    \
      fprintf(stderr, "%s:%d: not so: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, muster_last_error_message());               \
      exit(1);                                                                                                                             \
    }                                                                                                                                      \
  } while (0)

static int is_error(enum muster_status got, enum muster_status status, enum muster_error_kind kind) {
  return got == status && muster_last_error_kind() == kind && muster_last_error_message()[0] != '\0';
}

static void check_constants(void) {
  size_t i;
  EXPECT(strchr(muster_version(), '.') != NULL);
  EXPECT(muster_backend_count() > 0);
  for (i = 0; i < muster_backend_count(); ++i) EXPECT(strlen(muster_backend_name(i)) > 0 && strlen(muster_backend_name(i)) < 32);
  EXPECT(muster_backend_name(i) == NULL);
  EXPECT(muster_backend_name((size_t)-1) == NULL);
}

static void check_null_arguments(void) {
  static const enum muster_status usage = MUSTER_USAGE;
  static const enum muster_error_kind invalid = MUSTER_INVALID_ARGUMENT;
  char text[] = "";
  char* source = text;
  size_t size = 7;
  muster_generator* generator = (muster_generator*)text;
  EXPECT(is_error(muster_codegen(NULL, 0, NULL, "triton", NULL, &source, &size), usage, invalid));
  EXPECT(source == NULL && size == 0);
  EXPECT(is_error(muster_codegen(text, 0, NULL, NULL, NULL, &source, &size), usage, invalid));
  EXPECT(is_error(muster_codegen(text, 0, NULL, "triton", NULL, NULL, NULL), usage, invalid));
  EXPECT(is_error(muster_generator_new(NULL, 0, NULL, &generator), usage, invalid));
  EXPECT(generator == NULL);
  EXPECT(is_error(muster_generator_new(text, 0, NULL, NULL), usage, invalid));
  EXPECT(is_error(muster_generator_codegen(NULL, "triton", NULL, &source, NULL), usage, invalid));
  EXPECT(muster_generator_notes(NULL) == NULL);
  muster_generator_free(NULL);
  muster_free(NULL);
}

static void check_errors(void) {
  char* source = NULL;
  muster_generator* generator = NULL;
  EXPECT(is_error(muster_codegen("", 0, NULL, "triton", NULL, &source, NULL), MUSTER_ERROR, MUSTER_DEVICE_IR_ERROR));
  EXPECT(strncmp(muster_last_error_message(), "<text>:", 7) == 0);
  EXPECT(is_error(muster_generator_new("nonsense", 8, "named.txt", &generator), MUSTER_ERROR, MUSTER_DEVICE_IR_ERROR));
  EXPECT(generator == NULL && strncmp(muster_last_error_message(), "named.txt:", 10) == 0);
  EXPECT(is_error(muster_codegen("nonsense", 8, NULL, "trito", NULL, &source, NULL), MUSTER_ERROR, MUSTER_UNKNOWN_BACKEND));
  EXPECT(strstr(muster_last_error_message(), "Did you mean 'triton'?") != NULL);
}

static const char* const small_document = "device_ir 1\n"
                                          "kernel negate\n"
                                          "host_tensor x f32[64] strides [1]\n"
                                          "block 0 u0 size 64 tile block_size 32\n"
                                          "root root_0 blocks [0] phase 0\n"
                                          "config {\"block_sizes\": [32]}\n"
                                          "\n"
                                          "def root_0():\n"
                                          "    x: \"f32[64]\" = helion_language__tracing_ops__host_tensor('x')\n"
                                          "    i: \"Sym(u0)\" = helion_language__tracing_ops__get_symnode('i')\n"
                                          "    value: \"f32[u0]\" = helion_language_memory_ops_load(x, [i], None, None)\n"
                                          "    negated: \"f32[u0]\" = torch.ops.aten.neg.default(value)\n"
                                          "    store = helion_language_memory_ops_store(x, [i], negated, None)\n"
                                          "    return None\n";

/* What a call leaves for the next one of its thread changes no result. At exit the thread's own objects are gone. */
static void check_again(void) {
  char* first = NULL;
  char* again = NULL;
  char* source = NULL;
  const char* const backends[] = {"triton", "cpu"};
  size_t b;
  for (b = 0; b < 2; ++b) {
    const enum muster_status status = muster_codegen(small_document, strlen(small_document), NULL, backends[b], NULL, &first, NULL);
    EXPECT(status == MUSTER_OK);
    EXPECT(is_error(muster_codegen("nonsense", 8, NULL, backends[b], NULL, &source, NULL), MUSTER_ERROR, MUSTER_DEVICE_IR_ERROR));
    EXPECT(strncmp(muster_last_error_message(), "<text>:", 7) == 0);
    EXPECT(muster_codegen(small_document, strlen(small_document), NULL, backends[b], NULL, &again, NULL) == MUSTER_OK);
    EXPECT(strcmp(first, again) == 0);
    muster_free(first);
    muster_free(again);
  }
}

static char* read_file(const char* name, size_t* size) {
  const size_t most = (size_t)64 << 20;
  FILE* const file = fopen(name, "rb");
  char* const text = (char*)malloc(most);
  EXPECT(file != NULL && text != NULL);
  *size = fread(text, 1, most, file);
  fclose(file);
  return text;
}

int main(int argc, char** argv) {
  size_t size = 0;
  size_t source_size = 0;
  char* text;
  char* source;
  enum muster_status status;
  if (argc < 3) {
    check_constants();
    check_null_arguments();
    check_errors();
    check_again();
    EXPECT(atexit(check_again) == 0);
    return 0;
  }
  text = read_file(argv[1], &size);
  status = muster_codegen(text, size, argv[1], argv[2], argc > 3 ? argv[3] : NULL, &source, &source_size);
  free(text);
  if (status != MUSTER_OK) {
    EXPECT(source == NULL && source_size == 0);
    fprintf(stderr, "%s\n", muster_last_error_message());
    return status;
  }
  EXPECT(muster_last_error_kind() == MUSTER_NO_ERROR && muster_last_error_message()[0] == '\0');
  EXPECT(strlen(source) == source_size);
  fwrite(source, 1, source_size, stdout);
  muster_free(source);
  return 0;
}
