//! Whole-system simulation: complete workers, joined by a simulated wire, in one thread on a
//! virtual clock. Everything follows from one seed.
//!
//! A scenario runs under [`with_seeds`]. It either lets applications carry out plans
//! ([`Conversation`]) or is both applications itself ([`Session`]); below both is the [`World`].

mod conversation;
mod plan;
mod remote;
mod seeds;
mod session;
mod stranger;
mod traffic;
mod world;

pub use conversation::{Conversation, Setup};
pub use plan::{Kind, Plan, Step};
pub use remote::Remote;
pub use seeds::with_seeds;
pub use session::{SESSION_BUFFER_LEN, SESSION_PORT, Session, Side};
pub use stranger::{Ending, Script, Stranger, StrangerLog};
pub use traffic::{End, Outcome, Traffic};
pub use world::{Actor, Host, Stalled, World};
