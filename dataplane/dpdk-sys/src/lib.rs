//! Bindings to DPDK: what bindgen makes of the few functions and types that the engine uses,
//! and `iw_*` symbols for DPDK's inline functions (`src/shim.h`).
//!
//! Generated code only. Safe types are in `dataplane::port::dpdk`. Every function here has the
//! contract that DPDK's documentation gives it; the shims add nothing to the functions they wrap.

#![expect(missing_docs, reason = "DPDK's own documentation describes these names")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
#![allow(unused_qualifications, reason = "bindgen qualifies every name")]
#![allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks, reason = "generated")]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]
#![allow(clippy::semicolon_if_nothing_returned, clippy::needless_pass_by_value)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
