// The part of lab.py that runs in the page. It is loaded into every page before JupyterLab's own scripts.
(() => {
  const pv = { messages: [], run: null, marks: 0 };
  window.packvizLab = pv;
  const unanswered = new Set(); // the ids of messages that the kernel is still handling

  // anywidget gives a widget two seconds to load, and then reports an error. A machine that also runs the unit tests may
  // need more time to parse plotly's script, so here a widget gets a minute.
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = (milliseconds) => timeout(30 * milliseconds);

  const CONTROLS =
    '[role=slider], button, select, textarea, ' +
    'input[type=checkbox], input[type=radio], input[type=text], input[type=number]';
  const app = () => window.jupyterapp;
  const panel = () => app().shell.currentWidget;
  const notebook = () => panel().node.querySelector('.jp-Notebook');
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

  // ---- the notebook: kernel, cells, theme -------------------------------------------------------

  pv.started = () => Boolean(app()?.restored) && app().restored.then(() => true);

  /** Opens a notebook, and closes all others. */
  pv.open = async (path) => {
    const others = [...app().shell.widgets('main')];
    await app().commands.execute('docmanager:open', { path });
    others.forEach((widget) => widget.dispose()); // last, because JupyterLab opens its launcher if nothing is open
  };

  pv.ready = () => {
    const current = app() && panel();
    return Boolean(current && current.content && current.content.model && current.sessionContext?.session?.kernel);
  };

  // JupyterLab asks every kernel for its widgets, and a kernel without ipywidgets then writes to stderr. torch.profiler
  // writes to stderr when it starts and stops.
  const HARMLESS = /^No such comm( target registered: jupyter\.widget\.control|: [0-9a-f-]+)$|^(USDT:.*\bprofiler_st(art|op)\s*)+$/;
  const plain = (text) => text.replace(/\x1b\[[0-9;]*m/g, '').trim();

  /** Records every error and all stderr output that the kernel sends, whether a cell or a callback caused it. */
  pv.listen = async () => {
    pv.messages = [];
    unanswered.clear();
    await panel().context.ready;
    await panel().sessionContext.ready;
    panel().sessionContext.iopubMessage.connect((_, message) => {
      const { msg_type: type } = message.header;
      if (type === 'error') {
        const { ename, evalue, traceback } = message.content;
        const kind = message.parent_header?.msg_type === 'execute_request' ? 'cell' : 'callback';
        pv.messages.push(`${kind}: ${plain(`${ename}: ${evalue}\n${(traceback || []).join('\n')}`)}`);
      } else if (type === 'stream' && message.content.name === 'stderr') {
        const text = plain(message.content.text);
        if (!HARMLESS.test(text)) pv.messages.push(`stderr: ${text}`);
      }
    });
    panel().sessionContext.session.kernel.anyMessage.connect((_, { msg: message, direction }) => {
      if (direction === 'send' && message.channel === 'shell') unanswered.add(message.header.msg_id);
      else if (message.content.execution_state === 'idle') unanswered.delete(message.parent_header.msg_id);
    });
  };

  pv.command = (name, args) => app().commands.execute(name, args ?? {}).then(() => true);

  pv.startRun = () => {
    pv.run = { done: false, error: null };
    app().commands.execute('notebook:run-all-cells').then(
      () => { pv.run.done = true; },
      (error) => { pv.run.done = true; pv.run.error = String(error); });
  };

  /** Returns whether the kernel has nothing to do. On a busy machine, the kernel's status alone is out of date. */
  pv.idle = () => unanswered.size === 0 && panel().sessionContext.session?.kernel?.status === 'idle';

  const LOOK = 20; // ms between two looks at the page
  /**
   * Waits until `done()` returns true, or until the kernel is idle and the notebook's DOM is unchanged for `quiet` ms.
   * Returns "done" or "rest", or "limit" after `limit` ms. Calls `done()` after changes of the DOM, and at the end.
   *
   * The looks at the page are counted, because the clock runs on while a change waits for a core.
   */
  const until = async (done, quiet, limit) => {
    const end = performance.now() + limit;
    let looks = 0, changed = true;
    const observer = new MutationObserver(() => { looks = 0; changed = true; });
    observer.observe(notebook(), { childList: true, subtree: true, characterData: true, attributes: true });
    try {
      while (performance.now() < end) {
        if (changed && done()) return 'done';
        changed = false;
        looks = pv.idle() ? looks + 1 : 0;
        if (looks * LOOK > quiet) return done() ? 'done' : 'rest';
        await sleep(LOOK);
      }
      return 'limit';
    } finally {
      observer.disconnect();
    }
  };

  /** Returns whether a widget has not been drawn yet, because its script or its model has not arrived. */
  pv.loading = () => [...notebook().querySelectorAll('.jp-OutputArea-output')]
    .some((node) => node.childElementCount === 0 && node.textContent === 'Loading widget...');

  /** Resolves to true when nothing has changed for `quiet` ms, or to false after `limit` ms. */
  pv.settle = async (quiet, limit) => await until(() => false, quiet, limit) === 'rest';

  /** Shuts the kernel down, and closes the notebook without saving it. */
  pv.shutdown = async () => {
    const current = panel();
    await current.sessionContext.shutdown();
    current.dispose();
  };

  /** Lists the cells that did not run, and the widgets that are not drawn. */
  pv.cellProblems = () => panel().content.widgets.flatMap((cell, index) => {
    const source = cell.model.sharedModel.getSource().trim();
    const reasons = [...cell.node.querySelectorAll('.jp-OutputArea-output')]
      .map((node) => node.textContent.trim())
      .filter((text) => /Error displaying widget|Loading widget|Failed to load model/.test(text));
    if (cell.model.type === 'code' && source && cell.model.executionCount === null) reasons.push('did not run');
    return reasons.map((reason) => `cell ${index} (${source.split('\n')[0]}): ${reason}`);
  });

  pv.cellCount = () => panel().content.widgets.length;

  pv.isDark = () => document.body.dataset.jpThemeLight === 'false';

  // ---- panels, pictures, controls ----------------------------------------------------------------

  const hash = (text) => {
    let a = 0xdeadbeef, b = 0x41c6ce57;
    for (let i = 0; i < text.length; i += 1) {
      const c = text.charCodeAt(i);
      a = Math.imul(a ^ c, 2654435761);
      b = Math.imul(b ^ c, 1597334677);
    }
    return `${(a >>> 0).toString(16)}${(b >>> 0).toString(16)}-${text.length}`;
  };

  const visible = (node) => {
    const box = node.getBoundingClientRect();
    const shown = node.checkVisibility({ visibilityProperty: true, opacityProperty: false });
    // A radio button or check box may be transparent and drawn by its label. One with a size of zero is hidden.
    return shown && box.width > 0 && box.height > 0;
  };

  const enabled = (node) => !node.disabled && !node.closest('[disabled], [aria-disabled=true], fieldset:disabled');

  const clean = (words) => (words ?? '').replace(/[\s\u200b-\u200d\ufeff]+/g, ' ').trim();
  const text = (node) => (node ? clean(node.textContent) : '');

  /** Returns the accessible name of a control. This is the part of the W3C's accname that these controls need. */
  const accessibleName = (node) => {
    const by = (node.getAttribute('aria-labelledby') ?? '').split(/\s+/).filter(Boolean);
    const referenced = by.map((id) => text(document.getElementById(id))).join(' ').trim();
    if (referenced) return referenced;
    const label = node.getAttribute('aria-label') ?? '';
    if (label.trim()) return clean(label); // a zero-width space counts as a label, although it is invisible
    const labels = [...(node.labels ?? [])].map(text).join(' ').trim();
    if (labels) return labels;
    if (node.tagName === 'BUTTON' && text(node)) return text(node);
    return clean(node.title || node.placeholder);
  };

  const kindOf = (node) => {
    if (node.getAttribute('role') === 'slider') return 'slider';
    if (node.closest('.widget-play')) return 'play';
    if (node.tagName === 'SELECT') return 'dropdown';
    if (node.tagName === 'TEXTAREA' || node.type === 'text') return 'text';
    if (node.type === 'number') return 'number';
    if (node.type === 'checkbox' || node.type === 'radio') return node.type;
    if (node.closest('.widget-toggle-buttons')) return 'choice';
    return node.closest('.widget-toggle-button') ? 'toggle' : 'button';
  };

  const valueOf = (node, kind) => {
    if (kind === 'checkbox' || kind === 'radio') return node.checked ? 'on' : 'off';
    if (kind === 'toggle' || kind === 'choice') return node.classList.contains('mod-active') ? 'on' : 'off';
    if (kind === 'dropdown') return node.selectedOptions[0]?.label ?? '';
    return node.getAttribute('aria-valuetext') ?? node.getAttribute('aria-valuenow') ?? node.value ?? '';
  };

  const outermost = (selector) => (node) => !node.parentElement.closest(selector);

  /** Returns every panel: panels, quizzes, and other outputs that contain a control. Each gets an id. */
  const panels = () => {
    const named = [...notebook().querySelectorAll('.packviz-panel, .packviz-quiz')]
      .filter(outermost('.packviz-panel, .packviz-quiz'));
    const others = [...notebook().querySelectorAll('.jp-OutputArea-child')]
      .filter((node) => !named.some((panel) => node.contains(panel) || panel.contains(node)))
      .filter((node) => node.querySelector(CONTROLS));
    const all = [...named, ...others];
    all.sort((a, b) => (a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
    all.forEach((node) => { node.dataset.pvPanel ??= String(pv.marks++); });
    return all;
  };

  const panelNode = (id) => document.querySelector(`[data-pv-panel="${id}"]`);

  pv.panels = () => panels().map((node) => ({
    id: node.dataset.pvPanel,
    kind: node.classList.contains('packviz-panel') ? 'panel'
      : node.classList.contains('packviz-quiz') ? 'quiz' : 'output',
    cell: [...notebook().querySelectorAll('.jp-Cell')].indexOf(node.closest('.jp-Cell')),
  }));

  pv.controls = (id) => [...panelNode(id).querySelectorAll(CONTROLS)].map((node) => {
    node.dataset.pvControl ??= String(pv.marks++);
    const options = node.tagName === 'SELECT' ? [...node.options].map((option) => option.label) : [];
    const kind = kindOf(node);
    const [low, now, high] = ['min', 'now', 'max'].map((part) => Number(node.getAttribute(`aria-value${part}`)));
    return {
      id: node.dataset.pvControl,
      kind,
      name: accessibleName(node),
      options,
      usable: visible(node) && enabled(node) && !(kind === 'slider' && low === high),
      value: valueOf(node, kind),
      at_maximum: kind === 'slider' && now >= high,
    };
  });

  const drawing = (node) => [
    node.outerHTML,
    ...[...node.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL()),
  ].join('\n');

  /** Returns a fingerprint of a panel's picture. If no picture is marked, everything but the controls counts. */
  pv.signature = (id) => {
    const root = panelNode(id);
    const marked = [...root.querySelectorAll('.packviz-picture')];
    const nodes = marked.length ? marked
      : [...root.querySelectorAll('svg, img, canvas, .widget-html, .widget-label, .jp-RenderedText')];
    return hash(nodes.filter((node) => !node.closest('.widget-slider, .widget-play')).map(drawing).join('\n'));
  };

  /**
   * Resolves to true as soon as the panel's picture differs from `before`. Resolves to false if nothing has changed for
   * `quiet` ms and the picture is still the same, or after `limit` ms.
   */
  pv.changed = async (id, before, quiet, limit) => (
    await until(() => pv.signature(id) !== before, quiet, limit) === 'done');

  const texts = (id, selector) => [...panelNode(id).querySelectorAll(selector)]
    .filter(visible).map(text).filter(Boolean).join('\n');
  pv.errorText = (id) => texts(id, '.packviz-error');
  pv.panelText = (id) => text(panelNode(id));
  pv.focused = () => document.activeElement?.dataset?.pvControl ?? null;

  /**
   * Makes the elements around the notebook show content beyond their edges. JupyterLab's body is 0 px high, and its
   * shell scrolls. Without this, axe-core would consider all content, or the part that is out of view, hidden.
   */
  pv.unclip = () => {
    for (let at = notebook().parentElement; at; at = at.parentElement) at.style.overflow = 'visible';
  };

  /** Returns the number of the cell that contains the first match of a selector. */
  pv.cellOf = (selector) => [...notebook().querySelectorAll('.jp-Cell')]
    .indexOf(document.querySelector(selector)?.closest('.jp-Cell'));

  // ---- contrast ----------------------------------------------------------------------------------

  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  /** Returns any CSS colour as [r, g, b, alpha], or null for "none" and for patterns. */
  const colour = (value) => {
    if (!value || value === 'none' || value.startsWith('url(')) return null;
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = '#000';
    canvas.fillStyle = value;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const opacity = (node) => {
    let value = 1;
    for (let at = node; at; at = at.parentElement) value *= Number(getComputedStyle(at).opacity);
    return value;
  };
  const isShape = (node) => node instanceof SVGGeometryElement;
  const paint = (node) => {
    const style = getComputedStyle(node);
    if (node instanceof SVGElement && node.tagName !== 'svg') {
      const fill = isShape(node) ? colour(style.fill) : null;
      return fill && [...fill.slice(0, 3), fill[3] * Number(style.fillOpacity) * opacity(node)];
    }
    const ground = colour(style.backgroundColor);
    return ground && [...ground.slice(0, 3), ground[3] * opacity(node)];
  };
  /** Returns whether a shape's fill covers a point. One path may draw many cells, so its box is not exact enough. */
  const covers = (shape, x, y) => shape.isPointInFill(new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse()));
  /** Returns the colour under the middle of a text: its ancestors' backgrounds, and SVG shapes drawn before it. */
  const groundOf = (node, x, y) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      if (!(at instanceof SVGElement) || at.tagName === 'svg') layers.unshift(at);
    }
    const svg = node.ownerSVGElement;
    if (svg) {
      const before = (shape) => shape.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING;
      layers.push(...[...svg.querySelectorAll('rect, path, circle, polygon, ellipse')].filter(
        (shape) => !shape.closest('defs, clipPath, pattern, mask') && before(shape)
          && covers(shape, x, y)));
    }
    return layers.map(paint).filter(Boolean).reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (high + 0.05) / (low + 0.05);
  };

  /** Returns the contrast of texts in a cell's pictures and tables: at most `limit` texts, evenly sampled. */
  pv.contrasts = (cell, limit) => {
    const outputs = notebook().querySelectorAll('.jp-Cell')[cell];
    const drawn = '.packviz-picture svg text, .jp-OutputArea svg.packviz text';
    const written = '.packviz-table :is(caption, th, td, table ~ div)';
    const all = [...outputs.querySelectorAll(`${drawn}, ${written}`)]
      .filter((node) => text(node) && node.checkVisibility());
    const step = Math.max(1, Math.ceil(all.length / limit));
    return all.filter((_, i) => i % step === 0).map((node) => {
      const box = node.getBoundingClientRect();
      const ground = groundOf(node, box.left + box.width / 2, box.top + box.height / 2);
      const style = getComputedStyle(node);
      const drawn = node instanceof SVGElement;
      const fill = colour(drawn ? style.fill : style.color) ?? [0, 0, 0, 0];
      const seen = fill[3] * opacity(node) * (drawn ? Number(style.fillOpacity) : 1);
      const ink = over([...fill.slice(0, 3), seen], ground);
      return { text: text(node), ratio: ratio(ink, ground), ink: ink.slice(0, 3), ground: ground.slice(0, 3) };
    });
  };
})();
