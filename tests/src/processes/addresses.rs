//! Where processes listen.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the processes of one cluster listen, or any others.
///
/// Linux takes all of 127.0.0.0/8 for loopback, so each cluster has an address of its own and no
/// port of it is taken by anybody else while a process is down. Elsewhere they share 127.0.0.1.
#[derive(Debug)]
pub struct Addresses {
    ip: Ipv4Addr,
    taken: Vec<u16>,
}

impl Addresses {
    /// Returns addresses that no other cluster uses.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn new() -> Self {
        static CLUSTERS: AtomicU32 = AtomicU32::new(0);
        let cluster = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let first = 1 + (high ^ u8::try_from(cluster % 64).expect("below 64") << 2) % 253;
        let own = Ipv4Addr::new(127, first, middle, low);
        let usable = TcpListener::bind((own, 0)).is_ok();
        Self {
            ip: if usable { own } else { Ipv4Addr::LOCALHOST },
            taken: Vec::new(),
        }
    }

    /// Returns where all of them are.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.ip.into()
    }

    /// Returns an address that no process listens on.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn free(&mut self) -> String {
        let port = std::iter::repeat_with(|| {
            let bound = TcpListener::bind((self.ip, 0)).and_then(|l| l.local_addr());
            bound.expect("a free port").port()
        })
        .find(|port| !self.taken.contains(port))
        .expect("it goes on for ever");
        self.taken.push(port);
        format!("{}:{port}", self.ip)
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self::new()
    }
}
