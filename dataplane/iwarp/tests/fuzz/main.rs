//! The fuzz targets over the inputs that are kept in `fuzz/seeds`, a folder a target. `scripts/fuzz` looks for more.

#[path = "../common/mod.rs"]
mod common;
mod targets;

use std::fs;
use std::path::Path;

#[test]
fn kept_inputs_are_survived() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, target) in targets::TARGETS {
        let mut inputs: Vec<_> = fs::read_dir(seeds.join(name))
            .unwrap_or_else(|error| panic!("no seeds of {name}: {error}"))
            .map(|entry| entry.unwrap().path())
            .collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "no seeds of {name}");
        for path in inputs {
            let input = fs::read(&path).unwrap();
            // Shown when it fails.
            eprintln!("{}", path.display());
            target(&input);
        }
    }
}
