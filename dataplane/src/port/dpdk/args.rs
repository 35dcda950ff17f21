//! Reads EAL arguments for what the EAL itself does not tell: which virtual devices must become
//! ports, and mistakes that end in silence (frames lost) or in an error without a remedy.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::error::EalError;

/// What matters to us in a list of EAL arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EalArgs {
    pub(super) vdevs: Vec<Vdev>,
    pub(super) no_huge: bool,
    pub(super) single_file_segments: bool,
    pub(super) log_level: bool,
    in_memory: bool,
    /// `-m` or `--socket-mem`.
    memory: bool,
}

/// One `--vdev name,key=value,...`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Vdev {
    pub(super) name: String,
    options: Vec<(String, String)>,
}

impl EalArgs {
    pub(super) fn parse(args: &[String]) -> Self {
        let mut parsed = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (option, value) = match arg.split_once('=') {
                Some((option, value)) if arg.starts_with("--") => (option, Some(value)),
                _ => (arg.as_str(), None),
            };
            match option {
                // getopt_long takes a value from the next argument too.
                "--vdev" => {
                    if let Some(value) = value.or_else(|| args.next().map(String::as_str)) {
                        parsed.vdevs.push(Vdev::parse(value));
                    }
                }
                "--no-huge" => parsed.no_huge = true,
                "--single-file-segments" => parsed.single_file_segments = true,
                "--log-level" => parsed.log_level = true,
                "--in-memory" => parsed.in_memory = true,
                "--socket-mem" => parsed.memory = true,
                "--" => break,
                // The number may be attached.
                _ => parsed.memory |= arg.starts_with("-m"),
            }
        }
        parsed
    }

    /// Finds what would fail later, less clearly.
    pub(super) fn check(&self, free_hugepages: u64) -> Result<(), EalError> {
        if !self.no_huge && free_hugepages == 0 {
            return Err(EalError::NoHugepages);
        }
        if self.no_huge && self.in_memory && self.memory {
            return Err(EalError::NoHugeInMemory);
        }
        for vdev in &self.vdevs {
            if let Some(folder) = vdev.socket_folder()
                && !folder.is_dir()
            {
                return Err(EalError::MissingSocketFolder { vdev: vdev.name.clone(), folder });
            }
            if let Some(path) = vdev.socket_to_connect()
                && !path.exists()
            {
                return Err(EalError::MissingSocket { vdev: vdev.name.clone(), path });
            }
            if vdev.shares_memory(self.no_huge) && !self.single_file_segments {
                return Err(EalError::NeedsSingleFileSegments { vdev: vdev.name.clone() });
            }
        }
        Ok(())
    }

    /// Removes the sockets that programs left behind which did not end in order. Drivers refuse to
    /// replace one, or remove that of a running program.
    pub(super) fn clear_stale_sockets(&self) -> Result<(), EalError> {
        for vdev in &self.vdevs {
            let Some(path) = vdev.socket_to_serve() else { continue };
            let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
            if !is_socket {
                continue;
            }
            // A socket of another type says so only when somebody serves it.
            match UnixStream::connect(&path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    // If that fails, so does the driver, and says why.
                    let _ = std::fs::remove_file(&path);
                }
                _ => return Err(EalError::SocketInUse { vdev: vdev.name.clone(), path }),
            }
        }
        Ok(())
    }
}

impl Vdev {
    fn parse(value: &str) -> Self {
        let mut parts = value.split(',');
        let name = parts.next().unwrap_or_default().to_owned();
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (key.to_owned(), value.to_owned())
        };
        Self { name, options: parts.map(pair).collect() }
    }

    pub(super) fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether it must appear as an Ethernet port.
    pub(super) fn is_port(&self) -> bool {
        ["net_", "eth_"].iter().any(|class| self.name.starts_with(class))
    }

    fn is(&self, driver: &str) -> bool {
        self.name.strip_prefix(driver).is_some_and(|rest| rest.bytes().all(|octet| octet.is_ascii_digit()))
    }

    /// The folder of a socket that this end or its peer creates.
    fn socket_folder(&self) -> Option<PathBuf> {
        let path = if self.is("net_memif") && self.option("socket-abstract") == Some("no") {
            self.option("socket")
        } else if self.is("net_vhost") || self.is("eth_vhost") {
            self.option("iface")
        } else if self.is("net_virtio_user") && self.serves() {
            self.option("path")
        } else {
            None
        }?;
        let folder = Path::new(path).parent()?;
        Some(if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_path_buf() })
    }

    /// A socket that the peer must have created before.
    fn socket_to_connect(&self) -> Option<PathBuf> {
        let connects = self.is("net_virtio_user") && !self.serves();
        if connects { self.option("path").map(PathBuf::from) } else { None }
    }

    /// A socket that this end creates.
    fn socket_to_serve(&self) -> Option<PathBuf> {
        let path = if self.is("net_memif") && self.option("socket-abstract") == Some("no") {
            (self.option("role") == Some("server")).then(|| self.option("socket")).flatten()
        } else if self.is("net_vhost") || self.is("eth_vhost") {
            (self.option("client") != Some("1")).then(|| self.option("iface")).flatten()
        } else if self.is("net_virtio_user") && self.serves() {
            self.option("path")
        } else {
            None
        };
        path.map(PathBuf::from)
    }

    fn serves(&self) -> bool {
        self.option("server") == Some("1")
    }

    /// Whether the peer maps our memory. Without hugepages the EAL's memory is one file anyway, but
    /// memif asks for the option all the same.
    fn shares_memory(&self, no_huge: bool) -> bool {
        let memif = self.is("net_memif") && self.option("zero-copy") == Some("yes");
        let virtio = self.is("net_virtio_user") && !no_huge;
        memif || virtio
    }
}

/// Free hugepages of every size, as the kernel counts them.
pub(super) fn free_hugepages() -> u64 {
    let Ok(sizes) = std::fs::read_dir("/sys/kernel/mm/hugepages") else { return 0 };
    sizes
        .flatten()
        .filter_map(|size| std::fs::read_to_string(size.path().join("free_hugepages")).ok())
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> EalArgs {
        EalArgs::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn vdevs_in_both_spellings() {
        let args =
            parse("-l 0,1 --vdev net_ring0 --vdev=net_memif0,role=server,id=0 --no-huge -- --vdev=net_null0");
        assert!(args.no_huge && !args.single_file_segments && !args.log_level);
        assert_eq!(args.vdevs.len(), 2);
        assert_eq!(args.vdevs[1].name, "net_memif0");
        assert_eq!(args.vdevs[1].option("role"), Some("server"));
        assert_eq!(args.vdevs[1].option("socket"), None);
        assert_eq!(parse("--vdev").vdevs, []);
    }

    #[test]
    fn no_hugepages_is_an_error_only_when_they_are_wanted() {
        assert_eq!(parse("--in-memory").check(0), Err(EalError::NoHugepages));
        assert_eq!(parse("--in-memory").check(1), Ok(()));
        assert_eq!(parse("--no-huge").check(0), Ok(()));
        for memory in ["-m 512", "-m512", "--socket-mem=512"] {
            assert_eq!(
                parse(&format!("--no-huge --in-memory {memory}")).check(0),
                Err(EalError::NoHugeInMemory)
            );
            assert_eq!(parse(&format!("--no-huge {memory}")).check(0), Ok(()));
        }
        assert_eq!(parse("--no-huge --in-memory").check(0), Ok(()));
    }

    #[test]
    fn a_stale_socket_is_removed_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("ironwarp-stale-{}.sock", std::process::id()));
        let vhost = parse(&format!("--no-huge --vdev net_vhost0,iface={}", path.display()));
        assert_eq!(vhost.clear_stale_sockets(), Ok(()), "there is none");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let memif = format!("--vdev net_memif0,role=server,socket-abstract=no,socket={}", path.display());
        for args in [&vhost, &parse(&memif)] {
            assert!(matches!(args.clear_stale_sockets(), Err(EalError::SocketInUse { .. })));
            assert!(path.exists());
        }
        drop(listener);
        assert_eq!(parse(&memif.replace("role=server,", "")).clear_stale_sockets(), Ok(()));
        assert!(path.exists(), "it is the peer's");
        assert_eq!(parse(&memif).clear_stale_sockets(), Ok(()));
        assert!(!path.exists());
        std::fs::write(&path, "no socket").unwrap();
        assert_eq!(vhost.clear_stale_sockets(), Ok(()));
        assert!(path.exists(), "only sockets are removed");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn missing_sockets_are_named() {
        let error = parse("--no-huge --vdev=net_vhost0,iface=/nonexistent/v.sock").check(0).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
        let error = parse("--no-huge --vdev net_memif0,socket=/nonexistent/m.sock,socket-abstract=no")
            .check(0)
            .unwrap_err();
        assert!(matches!(error, EalError::MissingSocketFolder { .. }));
        assert_eq!(parse("--no-huge --vdev net_memif0,socket=/nonexistent/m.sock").check(0), Ok(()));
        let error = parse("--no-huge --vdev net_virtio_user0,path=/nonexistent/v.sock").check(0).unwrap_err();
        assert!(matches!(error, EalError::MissingSocket { .. }));
    }

    #[test]
    fn shared_memory_must_be_one_file() {
        let refused =
            |line: &str| matches!(parse(line).check(1), Err(EalError::NeedsSingleFileSegments { .. }));
        assert!(refused("--in-memory --vdev net_memif0,zero-copy=yes"));
        assert!(refused("--no-huge --vdev net_memif0,zero-copy=yes"));
        assert!(refused("--in-memory --vdev net_virtio_user0,path=/dev/null"));
        assert!(!refused("--in-memory --single-file-segments --vdev net_virtio_user0,path=/dev/null"));
        assert!(!refused("--no-huge --vdev net_virtio_user0,path=/dev/null"));
        assert!(!refused("--in-memory --vdev net_memif0"));
    }
}
