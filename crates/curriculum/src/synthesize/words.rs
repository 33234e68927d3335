//! The words of synthetic files: without blanks or commas, and none a part of another.

/// First names.
pub(super) const NAMES: [&str; 60] = [
    "Ada", "Akira", "Amara", "Anton", "Astrid", "Bela", "Bruno", "Carla", "Cyril", "Dana", "Dario",
    "Edith", "Elif", "Emil", "Farid", "Fiona", "Greta", "Gustav", "Hana", "Hugo", "Ines", "Ivan",
    "Jana", "Jonas", "Kaito", "Karin", "Lars", "Leila", "Lydia", "Malik", "Marta", "Milan",
    "Nadia", "Nils", "Olga", "Oscar", "Paula", "Pedro", "Petra", "Quentin", "Rahel", "Ravi",
    "Rosa", "Samir", "Selma", "Silas", "Sofia", "Tariq", "Tessa", "Theo", "Tomas", "Ulla", "Uwe",
    "Vera", "Viktor", "Wanda", "Xenia", "Yusuf", "Zeno", "Zora",
];

/// Cities.
pub(super) const CITIES: [&str; 30] = [
    "Accra", "Athens", "Bergen", "Bogota", "Bremen", "Cairo", "Dakar", "Delhi", "Dublin", "Geneva",
    "Hanoi", "Havana", "Kyoto", "Lagos", "Lima", "Lisbon", "Lyon", "Malmo", "Manila", "Nairobi",
    "Oslo", "Porto", "Prague", "Quito", "Riga", "Seville", "Tallinn", "Tunis", "Turin", "Vienna",
];

/// Shop items.
pub(super) const ITEMS: [&str; 30] = [
    "anchor", "basket", "bell", "blanket", "bottle", "brush", "bucket", "candle", "carpet",
    "chair", "clock", "compass", "curtain", "drum", "ladder", "lamp", "lantern", "mirror",
    "needle", "paddle", "pillow", "plate", "ribbon", "rope", "saddle", "scarf", "shovel", "stove",
    "table", "vase",
];

/// Code words.
pub(super) const CODES: [&str; 30] = [
    "amber", "birch", "cedar", "cobalt", "copper", "coral", "crystal", "dahlia", "ember", "falcon",
    "garnet", "granite", "harbor", "indigo", "ivory", "jasmine", "juniper", "lagoon", "lilac",
    "marble", "meadow", "nickel", "opal", "orchid", "pepper", "quartz", "raven", "saffron",
    "topaz", "walnut",
];

/// Integer settings.
pub(super) const KEYS: [&str; 16] = [
    "backlog", "batch", "buffer", "capacity", "depth", "grace", "interval", "limit", "port",
    "quota", "replicas", "retries", "threads", "timeout", "window", "workers",
];

/// Services.
pub(super) const SERVICES: [&str; 20] = [
    "archive", "auth", "billing", "cache", "catalog", "chat", "export", "gateway", "index",
    "ledger", "mail", "metrics", "orders", "payments", "proxy", "queue", "reports", "search",
    "storage", "users",
];

/// Hobbies.
pub(super) const HOBBIES: [&str; 16] = [
    "archery",
    "baking",
    "chess",
    "cycling",
    "diving",
    "fencing",
    "gardening",
    "juggling",
    "knitting",
    "painting",
    "pottery",
    "rowing",
    "sailing",
    "singing",
    "skating",
    "weaving",
];

/// Professions.
pub(super) const TRADES: [&str; 16] = [
    "baker",
    "barber",
    "carpenter",
    "chemist",
    "dentist",
    "farmer",
    "gardener",
    "glazier",
    "librarian",
    "locksmith",
    "mason",
    "nurse",
    "painter",
    "plumber",
    "tailor",
    "teacher",
];

/// Calendar events.
pub(super) const EVENTS: [&str; 24] = [
    "auction",
    "ballet",
    "banquet",
    "bazaar",
    "concert",
    "contest",
    "exam",
    "fair",
    "gala",
    "hike",
    "inspection",
    "lecture",
    "market",
    "opera",
    "parade",
    "picnic",
    "quiz",
    "recital",
    "regatta",
    "reunion",
    "seminar",
    "summit",
    "tournament",
    "workshop",
];

/// Components of a program, in its log.
pub(super) const PARTS: [&str; 8] =
    ["api", "cron", "db", "disk", "http", "mailer", "parser", "worker"];

/// Directory names.
pub(super) const DIRS: [&str; 16] = [
    "alpha", "basement", "cabinet", "delta", "drawer", "east", "folder", "garage", "hall", "inner",
    "lower", "north", "outer", "shelf", "upper", "west",
];

/// Topics, in file names.
pub(super) const TOPICS: [&str; 20] = [
    "agenda",
    "budget",
    "contacts",
    "diary",
    "draft",
    "errands",
    "guide",
    "inventory",
    "journal",
    "letters",
    "memo",
    "minutes",
    "notes",
    "outline",
    "plans",
    "recipes",
    "records",
    "schedule",
    "survey",
    "travel",
];

/// Filler sentences, which no question asks about.
pub(super) const FILLERS: [&str; 16] = [
    "The weather stayed mild for most of the week.",
    "Nothing else happened that day.",
    "The old bridge was closed for repairs again.",
    "Somebody had left the window open.",
    "The train was late, as it often is in autumn.",
    "A small crowd had gathered near the fountain.",
    "The shop on the corner sells bread and newspapers.",
    "It rained a little in the afternoon.",
    "The meeting was moved to another room.",
    "Most of the chairs were still empty.",
    "The path along the river is quiet in the morning.",
    "They agreed to talk about it later.",
    "The lights went out for a minute and came back.",
    "A dog barked somewhere behind the houses.",
    "The coffee was strong and the cake was dry.",
    "Everybody knew the song and nobody sang it.",
];
