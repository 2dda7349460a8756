//! What a test shuts between two parts that reach each other over it.
//!
//! What it is not: a network. What is sent through it arrives in order, or the connection breaks.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What passes through it goes to one address, while it is open.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    /// The connections that pass; nothing while it is shut.
    passing: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Gate {
    /// Returns an open gate to an address.
    ///
    /// # Panics
    ///
    /// When nothing can listen on loopback.
    #[must_use]
    pub fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("it is bound");
        let passing = Arc::new(Mutex::new(Some(Vec::new())));
        let (gate, target) = (passing.clone(), target.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.and_then(|stream| pass(&gate, stream, &target));
            }
        });
        Self { address, passing }
    }

    /// Returns where one goes to pass it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks what passes, and lets nothing pass any more.
    pub fn shut(&self) {
        for stream in taken(&self.passing).take().unwrap_or_default() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets what comes from now on pass.
    pub fn open(&self) {
        *taken(&self.passing) = Some(Vec::new());
    }
}

/// A test that failed meanwhile has its own message.
fn taken<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets one connection pass. A connection that comes while the gate is shut is dropped.
fn pass(gate: &Mutex<Option<Vec<TcpStream>>>, near: TcpStream, target: &str) -> io::Result<()> {
    let mut passing = taken(gate);
    let Some(passing) = passing.as_mut() else {
        return near.shutdown(Shutdown::Both);
    };
    let far = TcpStream::connect(target)?;
    passing.extend([near.try_clone()?, far.try_clone()?]);
    for (mut from, mut to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
