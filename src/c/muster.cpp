#include "muster.h"
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
import muster.error;
import muster.registry;
import muster.device_ir;
import muster.codegen;
import muster.builtin;

struct muster_generator {
  muster::device_ir::document document;
  muster::codegen::generator generator = muster::builtin_generator();
  std::string source;
  std::string notes;
};

namespace {

/// What a thread has of its own. Nothing here has a destructor: calls from static destructors and from other threads' last
/// moments, when a thread's objects are gone already, must work. The memory is given back by `thread_end`.
struct thread_state {
  muster_error_kind kind = MUSTER_NO_ERROR;
  const char* message = "";
  char* text = nullptr;             ///< what `message` points into, where it is not a literal; from malloc
  muster_generator* spare = nullptr; ///< for the next call of muster_codegen: its buffers are the half of a small document's time
};
constinit thread_local thread_state of_this_thread;

struct thread_end {
  bool armed = false;
  thread_end() noexcept = default;
  thread_end(const thread_end&) = delete;
  thread_end& operator=(const thread_end&) = delete;
  ~thread_end() {
    thread_state& state = of_this_thread;
    if (state.message == state.text) state.message = "";
    std::free(std::exchange(state.text, nullptr));
    delete std::exchange(state.spare, nullptr);
  }
};

/// To be called when this thread's state comes to own memory.
void free_at_thread_end() noexcept {
  thread_local thread_end end;
  end.armed = true;
}

muster_status fail(muster_status status, muster_error_kind kind, const char* literal) noexcept {
  of_this_thread.kind = kind;
  of_this_thread.message = literal;
  return status;
}

muster_status fail(muster_status status, muster_error_kind kind, const std::exception& exception) noexcept {
  thread_state& state = of_this_thread;
  std::free(std::exchange(state.text, strdup(exception.what())));
  free_at_thread_end();
  return fail(status, kind, state.text != nullptr ? state.text : "an error, and no memory left for its message");
}

/// A generator that this thread had for an earlier call, or a new one.
std::unique_ptr<muster_generator> take_generator() {
  std::unique_ptr<muster_generator> had(std::exchange(of_this_thread.spare, nullptr));
  return had ? std::move(had) : std::make_unique<muster_generator>();
}

/// Keeps it for the next call, unless a document of unusual size has made it large.
void keep_generator(std::unique_ptr<muster_generator> generator, std::size_t text_size) noexcept {
  constexpr std::size_t usual_text = 1U << 20U;
  if (text_size > usual_text || of_this_thread.spare != nullptr) return;
  of_this_thread.spare = generator.release();
  free_at_thread_end();
}

muster_status null_argument(const char* literal) noexcept { return fail(MUSTER_USAGE, MUSTER_INVALID_ARGUMENT, literal); }

/// Calls `work` and turns what it throws into a status and the thread's last error.
template <class Work> muster_status guarded(Work work) noexcept {
  try {
    work();
    return fail(MUSTER_OK, MUSTER_NO_ERROR, "");
  } catch (const muster::BackendImplementationMissing& e) {
    return fail(MUSTER_IMPLEMENTATION_MISSING, MUSTER_BACKEND_IMPLEMENTATION_MISSING, e);
  } catch (const muster::BackendUnsupported& e) {
    return fail(MUSTER_ERROR, MUSTER_BACKEND_UNSUPPORTED, e);
  } catch (const muster::UnknownBackend& e) {
    return fail(MUSTER_ERROR, MUSTER_UNKNOWN_BACKEND, e);
  } catch (const muster::BackendNotBuilt& e) {
    return fail(MUSTER_ERROR, MUSTER_BACKEND_NOT_BUILT, e);
  } catch (const muster::UnknownOperation& e) {
    return fail(MUSTER_ERROR, MUSTER_UNKNOWN_OPERATION, e);
  } catch (const muster::DeviceIRError& e) {
    return fail(MUSTER_ERROR, MUSTER_DEVICE_IR_ERROR, e);
  } catch (const std::bad_alloc&) {
    return fail(MUSTER_ERROR, MUSTER_OUT_OF_MEMORY, "Out of memory");
  } catch (const std::exception& e) {
    return fail(MUSTER_ERROR, MUSTER_OTHER_ERROR, e);
  } catch (...) {
    return fail(MUSTER_ERROR, MUSTER_OTHER_ERROR, "an exception of unknown type");
  }
}

/// The caller's own copy: from malloc, as no caller should need this library's operator delete.
char* copy_of(std::string_view text) {
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

void read_document(muster_generator& into, const char* text, std::size_t size, const char* file) {
  muster::device_ir::parse_into(into.document, std::string_view(text, size), file == nullptr ? "<text>" : file);
  muster::device_ir::verify(into.document);
}

void generate(muster_generator& with, const char* backend, const char* config, char** source, std::size_t* source_size) {
  (void)muster::builtin_registry().backend_named(backend); // an unknown backend is reported before a config is read
  with.source.clear();
  if (config == nullptr) with.generator.generate(with.document, backend, with.source);
  else with.generator.generate(with.document, muster::device_ir::parse_config(config, with.document.config), backend, with.source);
  with.notes.clear();
  for (const std::string& note : with.generator.notes()) with.notes.append(note).append("\n");
  *source = copy_of(with.source);
  if (source_size != nullptr) *source_size = with.source.size();
}

/// Results after an error, set before anything can fail.
void clear(char** source, std::size_t* source_size) noexcept {
  if (source != nullptr) *source = nullptr;
  if (source_size != nullptr) *source_size = 0;
}

} // namespace

const char* muster_version() { return MUSTER_VERSION; }

std::size_t muster_backend_count() { return muster::builtin_registry().backends().size(); }

const char* muster_backend_name(std::size_t index) {
  const auto backends = muster::builtin_registry().backends();
  return index < backends.size() ? backends[index].name.data() : nullptr; // the built-in backends' names are literals
}

muster_error_kind muster_last_error_kind() { return of_this_thread.kind; }
const char* muster_last_error_message() { return of_this_thread.message; }

void muster_free(char* string) { std::free(string); }

muster_status muster_codegen(const char* text, std::size_t size, const char* file, const char* backend, const char* config, char** source,
                             std::size_t* source_size) {
  clear(source, source_size);
  if (text == nullptr) return null_argument("muster_codegen: text is null");
  if (backend == nullptr) return null_argument("muster_codegen: backend is null");
  if (source == nullptr) return null_argument("muster_codegen: source is null");
  return guarded([&] {
    (void)muster::builtin_registry().backend_named(backend); // as the tool: before the document is read
    std::unique_ptr<muster_generator> generator = take_generator();
    read_document(*generator, text, size, file);
    generate(*generator, backend, config, source, source_size);
    keep_generator(std::move(generator), size);
  });
}

muster_status muster_generator_new(const char* text, std::size_t size, const char* file, muster_generator** generator) {
  if (generator != nullptr) *generator = nullptr;
  if (text == nullptr) return null_argument("muster_generator_new: text is null");
  if (generator == nullptr) return null_argument("muster_generator_new: generator is null");
  return guarded([&] {
    auto made = std::make_unique<muster_generator>();
    read_document(*made, text, size, file);
    *generator = made.release();
  });
}

muster_status muster_generator_codegen(muster_generator* generator, const char* backend, const char* config, char** source,
                                       std::size_t* source_size) {
  clear(source, source_size);
  if (generator == nullptr) return null_argument("muster_generator_codegen: generator is null");
  if (backend == nullptr) return null_argument("muster_generator_codegen: backend is null");
  if (source == nullptr) return null_argument("muster_generator_codegen: source is null");
  return guarded([&] { generate(*generator, backend, config, source, source_size); });
}

const char* muster_generator_notes(const muster_generator* generator) { return generator == nullptr ? nullptr : generator->notes.c_str(); }

void muster_generator_free(muster_generator* generator) { delete generator; }
