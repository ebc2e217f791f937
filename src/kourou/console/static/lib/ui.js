// Preact, htm and signals under one name. A template becomes elements and text nodes: text never becomes markup.

import { Fragment, h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { Fragment, h, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export { batch, computed, effect, signal } from "../vendor/signals.js";
