//! Whole-system simulation: complete workers, joined by a simulated wire, in one thread on a
//! virtual clock. Everything follows from one seed.

mod plan;
mod traffic;
mod world;

pub use plan::{Kind, Plan, Step};
pub use traffic::{End, Outcome, Traffic};
pub use world::{Host, Stalled, World};
