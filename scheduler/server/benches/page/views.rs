//! How long a member takes for each view, and how large it is.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::fault::{Outcome, fault};
use crate::times::Times;

/// How often each view is requested.
const REQUESTS: usize = 20;

/// Requests each view, one after the other, and prints the figures.
pub(crate) fn measure(address: SocketAddr, host: &str) -> Outcome<()> {
    println!(
        "\n{:<28} {:>9} {:>10} {:>10}",
        "view", "bytes", "p50 ms", "max ms"
    );
    for path in [
        "/".to_owned(),
        "/hosts".to_owned(),
        "/hosts?by=aggregate".to_owned(),
        "/hosts?q=h00012".to_owned(),
        format!("/hosts/{host}"),
        "/vms".to_owned(),
    ] {
        let (mut figures, mut bytes) = (Times::default(), 0);
        for _ in 0..REQUESTS {
            let (took, text) = get(address, &path)?;
            if !text.starts_with("HTTP/1.1 200 ") {
                return Err(fault(text));
            }
            bytes = text.len();
            figures.record(took);
        }
        let (median, worst) = (figures.percentile_ms(50), figures.percentile_ms(100));
        println!("{path:<28} {bytes:>9} {median:>10.1} {worst:>10.1}");
    }
    Ok(())
}

/// Requests a view; returns how long it took from the connection to the last byte.
pub(crate) fn get(address: SocketAddr, path: &str) -> std::io::Result<(Duration, String)> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok((begun.elapsed(), text))
}
