//! Every command: its pattern, what it does, an example, and how it is made of its values.

use std::fmt;
use std::path::PathBuf;

use super::grammar::{Arguments, Kind};
use tcpstack::tcp::congestion::CongestionControl;
use tcpstack::tcp::ecn::Ecn;

use super::{Command, IdlePolicy, MpaSetting, ServiceKind, ServiceRequest, Show, TcpSetting};

/// A piece of a pattern.
#[derive(Clone, Copy, Debug)]
pub enum Token {
    /// This very word.
    Word(&'static str),
    /// A value; the name is for `help` and for making the command.
    Value(&'static str, Kind),
    /// A value that may be left out; nothing follows it.
    Maybe(&'static str, Kind),
    /// Pairs of a word and a value, in any order, each at most once; nothing follows them.
    Options(&'static [(&'static str, Kind)]),
}

/// A command of the table.
pub struct Entry {
    /// What it looks like.
    pub pattern: &'static [Token],
    /// What it does, in one sentence.
    pub help: &'static str,
    /// One that works.
    pub example: &'static str,
    /// Makes it of the values that were matched.
    pub(super) make: fn(&Arguments) -> Command,
}

impl Entry {
    /// The first word.
    pub fn verb(&self) -> &'static str {
        match self.pattern {
            [Token::Word(verb), ..] => verb,
            _ => unreachable!("every pattern begins with its verb"),
        }
    }
}

/// The pattern as `help` shows it: values in capitals, what may be left out in brackets.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, token) in self.pattern.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            match token {
                Token::Word(word) => f.write_str(word)?,
                Token::Value(name, kind) => write!(f, "{}", Placeholder(name, *kind))?,
                Token::Maybe(name, kind) => write!(f, "[{}]", Placeholder(name, *kind))?,
                Token::Options(options) => {
                    for (index, (name, kind)) in options.iter().enumerate() {
                        let space = if index > 0 { " " } else { "" };
                        write!(f, "{space}[{name} {}]", Placeholder("N", *kind))?;
                    }
                }
            }
        }
        Ok(())
    }
}

struct Placeholder(&'static str, Kind);

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Kind::OneOf(words) => f.write_str(&words.join("|")),
            Kind::Switch => f.write_str("on|off"),
            Kind::Selector => f.write_str("N|all"),
            _ => f.write_str(self.0),
        }
    }
}

const VLAN: Kind = Kind::Number { min: 0, max: 4094 };
const MTU: Kind = Kind::Number { min: 576, max: 9_702 };
/// RFC 6581 gives IRD and ORD 14 bits, of which all ones means "not negotiated".
const DEPTH: Kind = Kind::Number { min: 0, max: 16_382 };
const SERVICE: Kind = Kind::OneOf(&["echo", "perf", "rping"]);
const SERVICE_OPTIONS: Token =
    Token::Options(&[("port", Kind::Selector), ("max-connections", Kind::Number { min: 1, max: 100_000 })]);

/// Every command, in the order in which `help` shows them.
pub const TABLE: &[Entry] = &[
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
            Token::Word("address"),
            Token::Value("ADDR/LEN", Kind::Cidr),
        ],
        help: "Gives a port an IPv4 or IPv6 address; a port may have several.",
        example: "set port 0 address 10.77.0.1/24",
        make: |a| Command::AddAddress { port: a.port("PORT"), address: a.cidr("ADDR/LEN") },
    },
    Entry {
        pattern: &[
            Token::Word("del"),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
            Token::Word("address"),
            Token::Value("ADDR/LEN", Kind::Cidr),
        ],
        help: "Takes an address from a port.",
        example: "del port 0 address 10.77.0.1/24",
        make: |a| Command::RemoveAddress { port: a.port("PORT"), address: a.cidr("ADDR/LEN") },
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
            Token::Word("mtu"),
            Token::Value("OCTETS", MTU),
        ],
        help: "Sets the largest IP packet of a port, in octets; before `start` only.",
        example: "set port 0 mtu 9000",
        make: |a| Command::SetMtu { port: a.port("PORT"), mtu: required(a.number("OCTETS")) },
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
            Token::Word("vlan"),
            Token::Value("ID", VLAN),
        ],
        help: "Puts a port into a VLAN; 0 takes it out. Before `start` only.",
        example: "set port 0 vlan 77",
        make: |a| {
            let id: u16 = required(a.number("ID"));
            Command::SetVlan { port: a.port("PORT"), vlan: (id > 0).then_some(id) }
        },
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
            Token::Word("checksum-offload"),
            Token::Value("SWITCH", Kind::Switch),
        ],
        help: "Whether a port uses its device's checksum offload, if it has one (default: on); before `start` only.",
        example: "set port 0 checksum-offload off",
        make: |a| Command::SetChecksumOffload { port: a.port("PORT"), on: a.switch("SWITCH") },
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
            Token::Word("congestion"),
            Token::Value("ALGORITHM", Kind::OneOf(&["cubic", "newreno", "dctcp"])),
        ],
        help: "Sets the congestion control of a port's connections (default: cubic); before `start` only.",
        example: "set port 0 congestion dctcp",
        make: |a| {
            let algorithm = match a.word("ALGORITHM") {
                Some("newreno") => CongestionControl::NewReno,
                Some("dctcp") => CongestionControl::Dctcp,
                _ => CongestionControl::Cubic,
            };
            Command::SetTcp { port: a.port("PORT"), setting: TcpSetting::Congestion(algorithm) }
        },
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
            Token::Word("ecn"),
            Token::Value("WHEN", Kind::OneOf(&["off", "accept", "request"])),
        ],
        help: "Uses Explicit Congestion Notification never, if peers ask (default), or by asking; before `start` only.",
        example: "set port 0 ecn request",
        make: |a| {
            let ecn = match a.word("WHEN") {
                Some("off") => Ecn::Off,
                Some("request") => Ecn::Request,
                _ => Ecn::Accept,
            };
            Command::SetTcp { port: a.port("PORT"), setting: TcpSetting::Ecn(ecn) }
        },
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
            Token::Word("pacing"),
            Token::Value("SWITCH", Kind::Switch),
        ],
        help: "Whether connections spread a window over its round trip (default: off); before `start` only.",
        example: "set port 0 pacing on",
        make: |a| Command::SetTcp { port: a.port("PORT"), setting: TcpSetting::Pacing(a.switch("SWITCH")) },
    },
    Entry {
        pattern: &[
            Token::Word("add"),
            Token::Word("route"),
            Token::Value("ADDR/LEN", Kind::Cidr),
            Token::Word("via"),
            Token::Value("GATEWAY", Kind::Address),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
        ],
        help: "Reaches a network through a gateway; what a port's own addresses imply needs no route.",
        example: "add route 0.0.0.0/0 via 10.77.0.254 port 0",
        make: |a| Command::AddRoute {
            port: a.port("PORT"),
            destination: a.cidr("ADDR/LEN"),
            gateway: a.address("GATEWAY"),
        },
    },
    Entry {
        pattern: &[
            Token::Word("del"),
            Token::Word("route"),
            Token::Value("ADDR/LEN", Kind::Cidr),
            Token::Word("via"),
            Token::Value("GATEWAY", Kind::Address),
            Token::Word("port"),
            Token::Value("PORT", Kind::Port),
        ],
        help: "Takes a route from a port.",
        example: "del route 0.0.0.0/0 via 10.77.0.254 port 0",
        make: |a| Command::RemoveRoute {
            port: a.port("PORT"),
            destination: a.cidr("ADDR/LEN"),
            gateway: a.address("GATEWAY"),
        },
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("idle"),
            Token::Value("POLICY", Kind::OneOf(&["busy", "yield"])),
        ],
        help: "Poll cores without work poll on (busy) or give their core away (yield); before `start` only.",
        example: "set idle yield",
        make: |a| {
            let busy = a.word("POLICY") == Some("busy");
            Command::SetIdle(if busy { IdlePolicy::Busy } else { IdlePolicy::Yield })
        },
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("mpa"),
            Token::Word("crc"),
            Token::Value("SWITCH", Kind::Switch),
        ],
        help: "Whether services that are started later ask for CRCs; either side's wish turns them on.",
        example: "set mpa crc off",
        make: |a| Command::SetMpa(MpaSetting::Crc(a.switch("SWITCH"))),
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("mpa"),
            Token::Word("markers"),
            Token::Value("SWITCH", Kind::Switch),
        ],
        help: "Whether services that are started later ask for markers.",
        example: "set mpa markers off",
        make: |a| Command::SetMpa(MpaSetting::Markers(a.switch("SWITCH"))),
    },
    Entry {
        pattern: &[
            Token::Word("set"),
            Token::Word("mpa"),
            Token::Word("revision"),
            Token::Value("REVISION", Kind::OneOf(&["1", "2"])),
        ],
        help: "The highest MPA revision of services that are started later.",
        example: "set mpa revision 1",
        make: |a| Command::SetMpa(MpaSetting::Revision(if a.word("REVISION") == Some("1") { 1 } else { 2 })),
    },
    Entry {
        pattern: &[Token::Word("set"), Token::Word("mpa"), Token::Word("ird"), Token::Value("READS", DEPTH)],
        help: "How many RDMA Reads of a peer services that are started later serve at a time.",
        example: "set mpa ird 16",
        make: |a| Command::SetMpa(MpaSetting::Ird(required(a.number("READS")))),
    },
    Entry {
        pattern: &[Token::Word("set"), Token::Word("mpa"), Token::Word("ord"), Token::Value("READS", DEPTH)],
        help: "How many RDMA Reads services that are started later have outstanding.",
        example: "set mpa ord 16",
        make: |a| Command::SetMpa(MpaSetting::Ord(required(a.number("READS")))),
    },
    Entry {
        pattern: &[Token::Word("start")],
        help: "Opens the ports and starts the poll cores.",
        example: "start",
        make: |_| Command::Start,
    },
    Entry {
        pattern: &[
            Token::Word("start"),
            Token::Value("SERVICE", SERVICE),
            Token::Value("ADDR:PORT", Kind::Endpoint),
            SERVICE_OPTIONS,
        ],
        help: "Offers a service at an address (0.0.0.0: all of IPv4, [::]: all) and TCP port, on all DPDK ports or one.",
        example: "start rping 0.0.0.0:7174 port 0",
        make: |a| {
            Command::StartService(ServiceRequest {
                kind: service(a),
                local: a.endpoint("ADDR:PORT"),
                ports: a.selector("port"),
                max_connections: a.number("max-connections"),
            })
        },
    },
    Entry {
        pattern: &[Token::Word("stop")],
        help: "Closes all connections, stops the poll cores and closes the ports; the set-up stays.",
        example: "stop",
        make: |_| Command::Stop,
    },
    Entry {
        pattern: &[
            Token::Word("stop"),
            Token::Value("SERVICE", SERVICE),
            Token::Value("ADDR:PORT", Kind::Endpoint),
        ],
        help: "Ends a service and its connections.",
        example: "stop rping 0.0.0.0:7174",
        make: |a| Command::StopService { kind: service(a), local: a.endpoint("ADDR:PORT") },
    },
    Entry {
        pattern: &[
            Token::Word("show"),
            Token::Word("port"),
            Token::Word("info"),
            Token::Value("PORT", Kind::Selector),
        ],
        help: "Shows a port's name, Ethernet address, addresses, link and offloads.",
        example: "show port info all",
        make: |a| Command::Show(Show::PortInfo(a.selector("PORT"))),
    },
    Entry {
        pattern: &[
            Token::Word("show"),
            Token::Word("port"),
            Token::Word("stats"),
            Token::Value("PORT", Kind::Selector),
        ],
        help: "Shows a port's packets and octets, and what was dropped and why.",
        example: "show port stats 0",
        make: |a| Command::Show(Show::PortStats(a.selector("PORT"))),
    },
    Entry {
        pattern: &[
            Token::Word("show"),
            Token::Word("port"),
            Token::Word("xstats"),
            Token::Value("PORT", Kind::Selector),
        ],
        help: "Shows the driver's own counters of a port.",
        example: "show port xstats 0",
        make: |a| Command::Show(Show::PortXstats(a.selector("PORT"))),
    },
    Entry {
        pattern: &[Token::Word("show"), Token::Word("config")],
        help: "Shows the commands that lead to the present set-up, ready for a file.",
        example: "show config",
        make: |_| Command::Show(Show::Config),
    },
    Entry {
        pattern: &[Token::Word("show"), Token::Word("conn")],
        help: "Shows the connections.",
        example: "show conn",
        make: |_| Command::Show(Show::Connections),
    },
    Entry {
        pattern: &[Token::Word("show"), Token::Word("listen")],
        help: "Shows the listeners.",
        example: "show listen",
        make: |_| Command::Show(Show::Listeners),
    },
    Entry {
        pattern: &[Token::Word("show"), Token::Word("mr")],
        help: "Shows the registered memory regions.",
        example: "show mr",
        make: |_| Command::Show(Show::Memory),
    },
    Entry {
        pattern: &[Token::Word("show"), Token::Word("service")],
        help: "Shows the services and what they did.",
        example: "show service",
        make: |_| Command::Show(Show::Services),
    },
    Entry {
        pattern: &[Token::Word("show"), Token::Word("iwarp"), Token::Word("stats")],
        help: "Shows the counters of TCP and iWARP, drops and protocol errors included.",
        example: "show iwarp stats",
        make: |_| Command::Show(Show::IwarpStats),
    },
    Entry {
        pattern: &[
            Token::Word("clear"),
            Token::Word("port"),
            Token::Word("stats"),
            Token::Value("PORT", Kind::Selector),
        ],
        help: "Sets a port's counters to zero.",
        example: "clear port stats all",
        make: |a| Command::ClearPortStats(a.selector("PORT")),
    },
    Entry {
        pattern: &[Token::Word("load"), Token::Value("FILE", Kind::Path)],
        help: "Runs the commands of a file.",
        example: "load setup.conf",
        make: |a| Command::Load(PathBuf::from(a.word("FILE").unwrap_or_default())),
    },
    Entry {
        pattern: &[Token::Word("help"), Token::Maybe("VERB", Kind::Word)],
        help: "Explains all commands, or those of one verb.",
        example: "help show",
        make: |a| Command::Help(a.word("VERB").map(str::to_owned)),
    },
    Entry {
        pattern: &[Token::Word("quit")],
        help: "Stops everything and ends the program.",
        example: "quit",
        make: |_| Command::Quit,
    },
];

fn required<T>(value: Option<T>) -> T {
    value.expect("the pattern has this value in a place that cannot be left out")
}

fn service(arguments: &Arguments) -> ServiceKind {
    match arguments.word("SERVICE") {
        Some("echo") => ServiceKind::Echo,
        Some("perf") => ServiceKind::Perf,
        _ => ServiceKind::Rping,
    }
}
