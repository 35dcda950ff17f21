//! The Ironwarp control plane: command line, configuration files, prompt and services.
//!
//! [`cli`] and [`config`] say what to run, [`commands`] is the one language of files and prompt, [`plan`]
//! is what it has set up so far, and [`appliance`] runs it over the engine's ports and workers.
//! [`services`] are the applications that an appliance offers to its peers.

#![forbid(unsafe_code)]

pub mod address;
pub mod appliance;
pub mod check;
pub mod cli;
pub mod commands;
pub mod config;
pub mod eal;
pub mod output;
pub mod plan;
pub mod prompt;
pub mod services;
