//! Finds DPDK through pkg-config, compiles the shim and generates the bindings.
//!
//! Links dynamically and only against the libraries that are called; the EAL loads the drivers
//! itself at run time.

use std::env;
use std::path::PathBuf;

/// Oldest release whose structures the bindings were written for.
const DPDK_OLDEST: &str = "22.11";

/// The libraries that the bindings call.
const LIBRARIES: [&str; 7] =
    ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal", "rte_bus_vdev", "rte_net_ring"];

const FUNCTIONS: &str = "iw_.*\
    |rte_eal_(init|cleanup|remote_launch|wait_lcore)|rte_eal_alarm_set|rte_version|rte_strerror\
    |rte_(get_main_lcore|get_next_lcore|lcore_count|lcore_is_enabled|thread_(un)?register|get_tsc_hz)\
    |rte_vdev_uninit|rte_log_set_global_level|rte_eth_from_rings|rte_ring_(create|free)\
    |rte_pktmbuf_(pool_create|free_bulk)|rte_mempool_(avail|in_use)_count|rte_mempool_free\
    |rte_eth_find_next|rte_eth_dev_(count_avail|get_name_by_port|get_port_by_name|socket_id|info_get|configure\
    |adjust_nb_rx_tx_desc|start|stop|close|set_mtu|get_mtu|default_mac_addr_set|rss_hash_conf_get|rss_reta_query)\
    |rte_eth_(rx|tx)_queue_setup|rte_eth_macaddr_get|rte_eth_(promiscuous|allmulticast)_(enable|get)\
    |rte_eth_stats_get|rte_eth_xstats_(get|get_names)|rte_eth_(stats|xstats)_reset";

const OPAQUE: &str = "\
    #[repr(C)] pub struct rte_mbuf { _opaque: [u8; 0] }
    #[repr(C)] pub struct rte_mempool { _opaque: [u8; 0] }
    #[repr(C)] pub struct rte_ring { _opaque: [u8; 0] }
    #[repr(C)] pub struct rte_device { _opaque: [u8; 0] }";

fn main() {
    for file in ["build.rs", "src/shim.h", "src/shim.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    for variable in ["LIBCLANG_PATH", "CLANG_PATH", "LLVM_CONFIG_PATH", "BINDGEN_EXTRA_CLANG_ARGS"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }

    // Flags only: the crate's idea of what to link is wrong for DPDK (every library, and
    // whole-archive in the wrong place when static).
    let dpdk = pkg_config::Config::new()
        .cargo_metadata(false)
        .atleast_version(DPDK_OLDEST)
        .probe("libdpdk")
        .unwrap_or_else(|error| {
            fail(&format!("DPDK {DPDK_OLDEST} or newer is not installed: {error}"));
        });
    let flags = compiler_flags();

    let mut shim = cc::Build::new();
    shim.file("src/shim.c").warnings(false);
    for flag in &flags {
        shim.flag(flag);
    }
    shim.compile("iw_shim");
    let directory = pkg_config::get_variable("libdpdk", "libdir").unwrap_or_default();
    if !directory.is_empty() {
        println!("cargo:rustc-link-search=native={directory}");
    }
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:version={}", dpdk.version);

    // bindgen loads libclang when it runs and panics when there is none.
    let bindings = std::panic::catch_unwind(|| {
        bindgen::Builder::default()
            .header("src/shim.h")
            .clang_args(&flags)
            .allowlist_function(FUNCTIONS)
            .allowlist_var("IW_.*")
            .allowlist_type("iw_.*|rte_eth_(conf|dev_info|rxconf|txconf|stats|xstat|xstat_name|rss_.*)")
            // Only ever behind a pointer; what is inside is found through the shim's offsets.
            .blocklist_type("rte_(mbuf|mempool|ring|device)")
            .raw_line(OPAQUE)
            .default_enum_style(bindgen::EnumVariation::Consts)
            .prepend_enum_name(false)
            .translate_enum_integer_types(true)
            .derive_default(true)
            .generate_comments(false)
            .layout_tests(true)
            .use_core()
            .rust_edition(bindgen::RustEdition::Edition2024)
            .generate()
    });
    let bindings = match bindings {
        Ok(Ok(bindings)) => bindings,
        Ok(Err(error)) => fail(&format!("bindgen could not read DPDK {}: {error}", dpdk.version)),
        Err(_) => fail("bindgen could not load libclang"),
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("bindings.rs")).expect("OUT_DIR is writable");
}

/// `pkg-config --cflags`, whole and in order: `-include rte_config.h` and `-march=...` matter, and
/// the pkg-config crate would split them.
fn compiler_flags() -> Vec<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    match std::process::Command::new(program).args(["--cflags", "libdpdk"]).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
        }
        _ => fail("`pkg-config --cflags libdpdk` failed"),
    }
}

fn fail(reason: &str) -> ! {
    eprintln!(
        "\ndpdk-sys: {reason}\n\n\
         On Debian or Ubuntu, install what it needs with\n\n    \
         apt-get install --no-install-recommends libdpdk-dev libclang-dev pkg-config gcc\n\n\
         or build without DPDK: --no-default-features. LIBCLANG_PATH names the folder of \
         libclang.so when there are several.\n"
    );
    std::process::exit(1);
}
