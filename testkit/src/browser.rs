//! A real browser: Chromium, driven over WebDriver by its `chromedriver`.
//!
//! Not a library of WebDriver: it has what the tests of the page use.
//!
//! Invariant: the browser has a profile of its own, and ends with this.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::wait::eventually;

/// How long a script may run.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(25);

/// How long the driver may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a request to the driver, which leaves the connection open; returns whether it was carried out, and the
/// body of the response.
fn exchange(address: &str, request: &str) -> io::Result<(bool, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut stream = BufReader::new(stream);
    let mut status = String::new();
    stream.read_line(&mut status)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((status.contains(" 200 "), body))
}

/// Returns the processes that a process began, and those that they began.
fn descendants(ancestor: u32) -> io::Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name of the program, which may contain anything: the state and the parent.
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        parents.extend(parent.and_then(|parent| Some((pid, parent.parse::<u32>().ok()?))));
    }
    let mut all = vec![ancestor];
    let mut at = 0;
    while let Some(&of) = all.get(at) {
        all.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == of)
                .map(|(pid, _)| pid),
        );
        at += 1;
    }
    Ok(all)
}

/// The size of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Whether it prefers a dark page.
    pub is_dark: bool,
}

/// A browser with one page.
pub struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser with its session; itself it goes on.
        let _ = self.call("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Starts one, with its profile in a folder.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn start(profile: &Path) -> Self {
        Self::start_with(profile, &[])
    }

    /// As [`Self::start`], with more options of Chromium.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn start_with(profile: &Path, more: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port").to_string();
        let port = address.rsplit_once(':').expect("a port").1;
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut browser = Self {
            driver: driver.expect("chromedriver starts"),
            address,
            session: String::new(),
        };
        eventually("the driver is ready", || {
            let status = browser.request("GET", "/status", &Value::Null)?;
            match status["ready"] == true {
                true => Ok(()),
                false => Err(status.to_string()),
            }
        });
        // As root it has no sandbox; it shows the pages of this test alone.
        let user = format!("--user-data-dir={}", profile.display());
        let mut arguments = vec![
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            &user,
        ];
        arguments.extend(more);
        let options = json!({"args": arguments});
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": SCRIPT_TIMEOUT.as_millis() as u64},
        }}});
        let begun = browser.request("POST", "/session", &capabilities);
        let begun = begun.expect("a session");
        let id = begun["sessionId"].as_str().expect("its id");
        browser.session = format!("/session/{id}");
        browser
    }

    /// Sends a command of the session.
    fn call(&self, method: &str, command: &str, body: &Value) -> Result<Value, String> {
        self.request(method, &format!("{}{command}", self.session), body)
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = match body.is_null() {
            true => String::new(),
            false => body.to_string(),
        };
        let address = &self.address;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: \
             application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let (is_done, body) = exchange(address, &request).map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        match is_done {
            true => Ok(answer["value"].take()),
            false => Err(answer["value"].to_string()),
        }
    }

    /// Opens an address.
    ///
    /// # Panics
    ///
    /// When it cannot be opened.
    #[track_caller]
    pub fn open(&self, url: &str) {
        let opened = self.call("POST", "/url", &json!({"url": url}));
        opened.unwrap_or_else(|why| panic!("{url}: {why}"));
    }

    /// Returns what a script returns.
    ///
    /// # Panics
    ///
    /// When it fails.
    #[track_caller]
    #[must_use]
    pub fn run(&self, script: &str) -> Value {
        let body = json!({"script": script, "args": []});
        let value = self.call("POST", "/execute/sync", &body);
        value.unwrap_or_else(|why| panic!("{script}: {why}"))
    }

    /// Returns what a script hands to its last argument, a function.
    ///
    /// # Panics
    ///
    /// When it fails, or takes too long.
    #[track_caller]
    #[must_use]
    pub fn run_async(&self, script: &str) -> Value {
        let body = json!({"script": script, "args": []});
        let value = self.call("POST", "/execute/async", &body);
        value.unwrap_or_else(|why| panic!("{why}"))
    }

    /// Returns the text that the page shows.
    #[track_caller]
    #[must_use]
    pub fn text(&self) -> String {
        let text = self.run("return document.body.innerText");
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page shows a text, without loading it.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        eventually(&format!("the page shows {text}"), || {
            let shown = self.text();
            match shown.contains(text) {
                true => Ok(()),
                false => Err(shown),
            }
        });
    }

    /// Clicks on the first element that a CSS selector matches, as a person does.
    ///
    /// # Panics
    ///
    /// When there is none, or it cannot be clicked on.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        // A view that follows the cluster may replace the element before it is clicked on.
        eventually(&format!("{selector} is clicked on"), || {
            let by = json!({"using": "css selector", "value": selector});
            let found = self.call("POST", "/element", &by)?;
            let id = found.as_object().and_then(|of| of.values().next());
            let id = id.and_then(Value::as_str).ok_or("it has no id")?;
            self.call("POST", &format!("/element/{id}/click"), &json!({}))
                .map(drop)
        });
    }

    /// Shows the page on another screen.
    ///
    /// # Panics
    ///
    /// When the browser does not support it.
    #[track_caller]
    pub fn set_screen(&self, screen: Screen) {
        let theme = if screen.is_dark { "dark" } else { "light" };
        let size = json!({
            "width": screen.width, "height": screen.height, "deviceScaleFactor": 1, "mobile": false,
        });
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        for (command, parameters) in [
            ("Emulation.setDeviceMetricsOverride", size),
            ("Emulation.setEmulatedMedia", media),
        ] {
            let body = json!({"cmd": command, "params": parameters});
            let done = self.call("POST", "/goog/cdp/execute", &body);
            done.unwrap_or_else(|why| panic!("{command}: {why}"));
        }
    }

    /// Returns the memory of the process that shows the page, in bytes: its own, and its part of what it shares.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read, or has no such process.
    pub fn page_memory(&self) -> io::Result<u64> {
        let shown = descendants(self.driver.id())?
            .into_iter()
            .filter_map(|pid| {
                let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
                command.contains("--type=renderer").then_some(())?;
                let memory = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
                let mut lines = memory.lines().filter_map(|line| line.strip_prefix("Pss:"));
                let kib = lines.next()?.trim().strip_suffix(" kB")?;
                kib.parse::<u64>().ok().map(|kib| kib * 1024)
            });
        // A browser may have a process at hand for the next page; that one is smaller.
        shown.max().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns what the browser has to complain about since the last call, as what its policy blocked.
    #[track_caller]
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let log = self.call("POST", "/se/log", &json!({"type": "browser"}));
        let log = log.unwrap_or_else(|why| panic!("{why}"));
        let lines = log.as_array().cloned().unwrap_or_default();
        lines
            .iter()
            .map(|line| line["message"].to_string())
            .collect()
    }
}
