// The reader's theme, before the first paint.
document.documentElement.dataset.theme = localStorage.theme ?? "";
