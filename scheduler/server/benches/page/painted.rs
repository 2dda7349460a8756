//! What a browser needs for each view: when it paints first, when all is loaded, and the memory of the page.

use std::net::SocketAddr;
use std::time::Duration;

use berth_testkit::browser::Browser;

use crate::fault::{Outcome, fault};
use crate::times::Times;

/// How often each view is opened.
const OPENED: usize = 10;

/// Hands the milliseconds from the navigation to the first paint, and to the end of loading, to its caller.
const TIMES: &str = "
    const done = arguments[arguments.length - 1];
    const look = () => {
        const paint = performance.getEntriesByName('first-contentful-paint')[0];
        const loaded = performance.getEntriesByType('navigation')[0];
        if (paint && loaded && loaded.loadEventEnd) done([paint.startTime, loaded.loadEventEnd]);
        else setTimeout(look, 10);
    };
    look();";

/// Opens each view, one after the other, and prints the figures.
pub(crate) fn measure(browser: &Browser, address: SocketAddr, host: &str) -> Outcome<()> {
    println!(
        "\n{:<28} {:>14} {:>14} {:>13} {:>9}",
        "view in the browser", "paint p50 ms", "paint max ms", "loaded p50 ms", "MiB"
    );
    for path in [
        "/".to_owned(),
        "/hosts".to_owned(),
        format!("/hosts/{host}"),
        "/vms".to_owned(),
    ] {
        let (mut paints, mut loads) = (Times::default(), Times::default());
        for _ in 0..OPENED {
            browser.open(&format!("http://{address}{path}"));
            let times = browser.run_async(TIMES);
            let ms = |at: usize| times[at].as_f64().ok_or_else(|| fault(times.to_string()));
            paints.record(Duration::from_secs_f64(ms(0)? / 1e3));
            loads.record(Duration::from_secs_f64(ms(1)? / 1e3));
        }
        println!(
            "{path:<28} {:>14.0} {:>14.0} {:>13.0} {:>9.0}",
            paints.percentile_ms(50),
            paints.percentile_ms(100),
            loads.percentile_ms(50),
            browser.page_memory()? as f64 / f64::from(1 << 20)
        );
    }
    Ok(())
}
