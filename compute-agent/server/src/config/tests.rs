//! Goal: a configuration is read as it is written, and all that is wrong with it is told at once.
//!
//! Not here: whether it goes with the machine.

use super::*;

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compute-agent.toml")
}

/// Goal: the sample is a working configuration and shows the true defaults, each key once.
#[test]
fn the_sample_holds_every_default() {
    let mut config = Config::load(Some(&sample()), |_| ()).unwrap();
    assert!(config.locations.contains("pci.device_spec"));
    config.locations = KeyLocations::default();
    assert_eq!(config.schedulers.len(), 3, "the members of the sample");
    let expected = Config {
        schedulers: config.schedulers.clone(),
        data_dir: Some("/var/lib/berth/compute-agent".into()),
        ..Config::default()
    };
    assert_eq!(config, expected);
    let text = std::fs::read_to_string(sample()).unwrap();
    let (_, faults) = configuration::parse(
        Config::default(),
        "x = 1\n[libvirt]\nx = 1\n[sim]\nx = 1\n[pci]\nx = 1\n[pmem]\nx = 1\n[watchdog]\nx = 1\n\
         [volumes]\nx = 1\n[tls]\nx = 1\n[migration]\nx = 1\n[images]\nx = 1",
    );
    assert_eq!(faults.len(), 10, "{faults:?}");
    for fault in faults {
        for key in fault.rsplit_once("are ").unwrap().1.split(", ") {
            let begins = [format!("{key} ="), format!("[{key}]")];
            let lines = text.lines().map(|l| l.trim_start_matches("# "));
            let count = lines
                .filter(|line| begins.iter().any(|b| line.starts_with(b)))
                .count();
            let expected = if matches!(key, "listen" | "advertise" | "tls" | "image_dir") {
                2
            } else {
                1
            };
            assert_eq!(count, expected, "{key}");
        }
    }
}

/// Goal: beside certificates, no libvirtd that accepts every client is advertised by default or by mistake.
#[test]
fn plain_tcp_between_hypervisors_is_for_labs() {
    let host = HostName::new("h1").unwrap();
    let mut config = Config {
        name: Some("h1".into()),
        ..Config::default()
    };
    let uri = |config: &Config| {
        let has_certificates = config.listening.encryption.is_configured();
        config.libvirt.uri_for_peers(&host, has_certificates)
    };
    assert_eq!(uri(&config), "qemu+tcp://h1/system");
    config.libvirt.migration_uri = Some("qemu+tcp://h1/system".into());
    config.validate().unwrap();

    let encryption = &mut config.listening.encryption;
    let file = |name: &str| Some(PathBuf::from(name));
    (encryption.ca, encryption.cert, encryption.key) = (file("a"), file("b"), file("c"));
    let faults = config.validate().unwrap_err().to_string();
    for part in [
        "libvirt.migration_uri",
        "auth_tcp",
        "qemu+tls://h1/system",
        "libvirt.insecure_migration_uri",
    ] {
        assert!(faults.contains(part), "{part}: {faults}");
    }
    config.driver = DriverKind::Sim;
    config.validate().unwrap();
    config.driver = DriverKind::Libvirt;
    config.libvirt.insecure_migration_uri = true;
    config.validate().unwrap();
    config.libvirt.insecure_migration_uri = false;
    for other in ["qemu+tls://h1:4000/system", "qemu+ssh://root@h1/system"] {
        config.libvirt.migration_uri = Some(other.into());
        config.validate().unwrap();
        assert_eq!(uri(&config), other);
    }
    config.libvirt.migration_uri = Some("qemu+ssh://h1/system?command=/bin/x".into());
    let faults = config.validate().unwrap_err().to_string();
    assert!(faults.contains("has parameters"), "{faults}");
    config.libvirt.migration_uri = None;
    assert_eq!(uri(&config), "qemu+tls://h1/system");
}

#[test]
fn all_faults_are_told_at_once() {
    let text = "listne = 1\ncpu_shared_set = \"a\"\ndriver = \"xen\"\n\
                [libvirt]\nvirt_typ = 1\nmachine = 7\n[sim]\ntransfer_ms = \"x\"\n";
    let (_, faults) = configuration::parse(Config::default(), text);
    assert_eq!(faults.len(), 6, "{faults:?}");
    let text = Faults(faults).to_string();
    for part in [
        "listne",
        "cpu_shared_set",
        "driver",
        "libvirt.machine",
        "virt_typ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let config = Config {
        name: Some("-".into()),
        listening: Listening::new("0.0.0.0:1"),
        schedulers: vec!["h1".into()],
        service_version: 99,
        libvirt: Libvirt {
            disk_cache: "big".into(),
            image_dir: "images".into(),
            ..Libvirt::default()
        },
        ..Config::default()
    };
    let faults = config.validate().unwrap_err();
    assert_eq!(faults.0.len(), 7, "{faults}");
}

/// Goal: a watchdog where it is of no use, or half told, is a fault.
#[test]
fn a_watchdog_must_make_sense() {
    let check = |driver, device: Option<&str>, timeout_s, expected: usize| {
        let watchdog = Watchdog {
            device: device.map(PathBuf::from),
            timeout_s,
        };
        let config = Config {
            name: Some("h1".to_owned()),
            driver,
            watchdog,
            ..Config::default()
        };
        let faults = config.validate().err().map_or(0, |faults| faults.0.len());
        assert_eq!(faults, expected, "{config:?}");
    };
    check(DriverKind::Libvirt, Some("/dev/watchdog0"), None, 0);
    check(DriverKind::Libvirt, Some("/dev/watchdog0"), Some(20), 0);
    check(DriverKind::Libvirt, Some("watchdog0"), Some(4), 2);
    check(DriverKind::Libvirt, None, Some(20), 1);
    check(DriverKind::Sim, Some("/dev/watchdog0"), None, 1);
}

/// Goal: a host that runs no VMs is told nothing about them, and has volumes.
#[test]
fn without_a_driver_there_are_volumes_and_nothing_for_guests() {
    let check = |text: &str, expected: &[&str]| {
        let text = format!("name = \"h1\"\ndriver = \"none\"\n{text}");
        let (config, faults) = configuration::parse(Config::default(), &text);
        assert!(faults.is_empty(), "{faults:?}");
        let faults = config.validate().err().map_or_else(Vec::new, |f| f.0);
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, word) in faults.iter().zip(expected) {
            assert!(fault.contains(word), "{word}: {fault}");
        }
    };
    let volumes = "[volumes]\nmanager = \"lvm\"\n";
    check(volumes, &[]);
    check("", &["volumes.manager"]);
    let sets = "cpu_shared_set = \"0\"\npmem_namespaces = \"A:n\"\n";
    check(
        &format!("{sets}{volumes}"),
        &["cpu_shared_set", "pmem_namespaces"],
    );
}

#[test]
fn other_addresses_than_loopback_need_a_word() {
    let mut config = Config {
        listening: Listening {
            advertise: Some("h1:7300".into()),
            ..Listening::new("0.0.0.0:7300")
        },
        sim: Sim {
            listen: "0.0.0.0:7400".into(),
            ..Sim::default()
        },
        ..Config::default()
    };
    assert_eq!(config.validate().unwrap_err().0.len(), 2);
    config.listening.insecure = true;
    assert!(config.validate().is_ok());
}
