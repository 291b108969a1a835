/// All of muster: `import muster;`.
///
/// The layers can be imported one by one, and those below know nothing of those above: `muster.registry` and `muster.launch`
/// know no kernels; `muster.device_ir` knows no backend. The backends themselves are reached through `builtin_registry()`,
/// or imported as `muster.backend.NAME` where a program composes a registry of its own.
export module muster;

export import muster.error;
export import muster.registry;
export import muster.launch;
export import muster.symbolic;
export import muster.device_ir;
export import muster.operations;
export import muster.codegen;
export import muster.builtin;
export import muster.runtime;
export import muster.interpret;
export import muster.check;
