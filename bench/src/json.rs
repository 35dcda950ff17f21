//! Results as JSON, in a file.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::report::Document;

/// Finds out before a long run whether its results can be written. Leaves the file as it is.
///
/// # Errors
/// Why they cannot.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        // A pipe would wait for its reader.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !is_plain(path) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// Writes documents: one as an object, several as an array.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, documents: &[Document]) -> io::Result<()> {
    let text = match documents {
        [document] => serde_json::to_string_pretty(document)?,
        _ => serde_json::to_string_pretty(documents)?,
    };
    fs::write(path, text + "\n")
}

/// A file or a folder, which open at once or not at all.
fn is_plain(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() || file.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_leaves_no_trace() {
        let folder = std::env::temp_dir().join(format!("ironwarp-json-{}", std::process::id()));
        assert!(check_writable(&folder.join("x.json")).is_err(), "there is no such folder");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("x.json");
        assert!(check_writable(&file).is_ok());
        assert!(!file.exists());
        fs::write(&file, "old").unwrap();
        assert!(check_writable(&file).is_ok());
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert!(check_writable(&folder).is_err(), "a folder is no file");
        assert!(check_writable(Path::new("/dev/null")).is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }
}
