"""A paragraph in each of many languages, to be written in the encodings that each has been written in.

All say about the same: what the weather was, when the market opens, and what a repair will cost.
"""

PARAGRAPHS = {
    "arabic": (
        "وصلت السفينة إلى الميناء مساء أمس بعد رحلة طويلة في بحر هائج. يفتح السوق أبوابه كل صباح عند الساعة "
        "السابعة، ويبيع التجار الخضار والسمك والخبز الطازج. قال المهندس إن إصلاح الجسر القديم سيكلف المدينة أكثر "
        "مما كان متوقعا، وإن العمل سوف يستمر حتى نهاية السنة القادمة."
    ),
    "chinese": (
        "昨天傍晚，一艘货船经过漫长的航行终于到达港口。市场每天早上七点开门，商人们出售蔬菜、鲜鱼和刚烤好的面包。"
        "工程师说，修理旧桥的费用比预计的要高，工程要到明年年底才能完成。因此市政府决定推迟学校的改建，并请居民谅"
        "解。"
    ),
    "chinese_traditional": (
        "昨天傍晚，一艘貨船經過漫長的航行終於到達港口。市場每天早上七點開門，商人們出售蔬菜、鮮魚和剛烤好的麵包。"
        "工程師說，修理舊橋的費用比預計的要高，工程要到明年年底才能完成。因此市政府決定延後學校的改建，並請居民諒"
        "解。"
    ),
    "czech": (
        "Včera večer připlula do přístavu loď po dlouhé cestě rozbouřeným mořem. Trh se otevírá každé ráno v "
        "sedm hodin a obchodníci na něm prodávají zeleninu, čerstvé ryby a ještě teplý chléb. Inženýr řekl, že "
        "oprava starého mostu bude dražší, než se původně předpokládalo, a že práce potrvají až do konce "
        "příštího roku."
    ),
    "french": (
        "Hier soir, un navire est arrivé au port après une longue traversée sur une mer agitée. Le marché ouvre "
        "chaque matin à sept heures : on y vend des légumes, du poisson frais et du pain encore chaud. "
        "L'ingénieur a déclaré que la réparation du vieux pont coûterait plus cher que prévu, et que les travaux "
        "dureraient jusqu'à la fin de l'année prochaine. La mairie a donc décidé de repousser la rénovation de "
        "l'école, où l'on espérait fêter Noël."
    ),
    "german": (
        "Gestern Abend erreichte ein Schiff nach einer langen Fahrt über die stürmische See den Hafen. Der Markt "
        "öffnet jeden Morgen um sieben Uhr; die Händler verkaufen Gemüse, frische Fische und noch warme "
        "Brötchen. Der Ingenieur erklärte, die Ausbesserung der alten Brücke werde die Stadt mehr kosten als "
        "ursprünglich geschätzt, und die Arbeiten würden bis zum Ende des nächsten Jahres dauern. Außerdem müsse "
        "die Straße für Fußgänger gesperrt werden."
    ),
    "greek": (
        "Χθες το βράδυ ένα πλοίο έφτασε στο λιμάνι ύστερα από μακρύ ταξίδι σε φουρτουνιασμένη θάλασσα. Η αγορά "
        "ανοίγει κάθε πρωί στις επτά και οι έμποροι πουλούν λαχανικά, φρέσκα ψάρια και ζεστό ψωμί. Ο μηχανικός "
        "είπε ότι η επισκευή της παλιάς γέφυρας θα κοστίσει περισσότερο από όσο περίμεναν, και οι εργασίες θα "
        "κρατήσουν ως το τέλος του επόμενου χρόνου."
    ),
    "hebrew": (
        "אמש הגיעה אל הנמל ספינה לאחר מסע ארוך בים סוער. השוק נפתח בכל בוקר בשעה שבע, והסוחרים מוכרים בו ירקות, "
        "דגים טריים ולחם חם. המהנדס אמר כי תיקון הגשר הישן יעלה לעיר יותר מכפי ששוער בתחילה, וכי העבודות יימשכו "
        "עד סוף השנה הבאה. לכן החליטה העירייה לדחות את שיפוץ בית הספר וביקשה מן התושבים סבלנות."
    ),
    "hungarian": (
        "Tegnap este hosszú, viharos út után hajó érkezett a kikötőbe. A piac minden reggel hét órakor nyit, az "
        "árusok zöldséget, friss halat és még meleg kenyeret kínálnak. A mérnök szerint a régi híd javítása "
        "többe fog kerülni, mint ahogyan előzőleg gondolták, és a munkálatok a jövő év végéig tartanak majd. "
        "Ezért a város elhalasztotta az iskola felújítását, és türelmet kért a lakóktól. Erről bővebben a hétfői "
        "ülésen esik szó."
    ),
    "japanese": (
        "昨日の夕方、長い航海を終えた船が港に着きました。市場は毎朝七時に開き、商人たちは野菜や新鮮な魚、焼きたて"
        "のパンを売っています。技師によると、古い橋の修理には予想より多くの費用がかかり、工事は来年の終わりまで続"
        "くということです。そのため市は学校の改築を延期することに決め、住民に理解を求めました。"
    ),
    "korean": (
        "어제 저녁에 긴 항해를 마친 배가 항구에 도착했습니다. 시장은 매일 아침 일곱 시에 문을 열고, 상인들은 "
        "채소와 신선한 생선, 갓 구운 빵을 팝니다. 기술자는 오래된 다리를 고치는 데 예상보다 많은 비용이 들고, "
        "공사는 내년 말까지 계속될 것이라고 말했습니다. 그래서 시는 학교 공사를 미루기로 하고 주민들에게 양해를 "
        "구했습니다."
    ),
    "lithuanian": (
        "Vakar vakare po ilgos kelionės audringa jūra į uostą atplaukė laivas. Turgus atsidaro kiekvieną rytą "
        "septintą valandą, prekeiviai parduoda daržoves, šviežią žuvį ir dar šiltą duoną. Inžinierius sakė, kad "
        "senojo tilto taisymas miestui kainuos daugiau, negu buvo manyta iš pradžių, ir kad darbai užtruks iki "
        "kitų metų pabaigos. Todėl savivaldybė nusprendė atidėti mokyklos remontą ir paprašė gyventojų kantrybės."
    ),
    "polish": (
        "Wczoraj wieczorem po długiej podróży przez wzburzone morze do portu wpłynął statek. Targ otwiera się "
        "codziennie o siódmej rano, a kupcy sprzedają tam warzywa, świeże ryby i jeszcze ciepły chleb. Inżynier "
        "powiedział, że naprawa starego mostu będzie kosztować miasto więcej, niż początkowo sądzono, i że prace "
        "potrwają do końca przyszłego roku. Dlatego urząd postanowił odłożyć remont szkoły i prosi mieszkańców o "
        "cierpliwość."
    ),
    "portuguese": (
        "Ontem à noite, um navio chegou ao porto depois de uma longa viagem por um mar agitado. O mercado abre "
        "todas as manhãs às sete horas, e os comerciantes vendem legumes, peixe fresco e pão ainda quente. O "
        "engenheiro disse que a reparação da velha ponte custará à cidade mais do que se pensava no início, e "
        "que as obras vão durar até ao fim do próximo ano. Por isso, a câmara não renovará já a escola, e pediu "
        "paciência à população."
    ),
    "russian": (
        "Вчера вечером после долгого пути по бурному морю в порт пришёл корабль. Рынок открывается каждое утро в "
        "семь часов, и торговцы продают там овощи, свежую рыбу и ещё тёплый хлеб. Инженер сказал, что ремонт "
        "старого моста обойдётся городу дороже, чем предполагали сначала, и что работы продлятся до конца "
        "будущего года. Поэтому управа решила отложить перестройку школы и просит жителей о терпении."
    ),
    "spanish": (
        "Ayer por la tarde llegó al puerto un barco después de una larga travesía por un mar agitado. El mercado "
        "abre todas las mañanas a las siete, y los vendedores ofrecen verduras, pescado fresco y pan aún "
        "caliente. El ingeniero explicó que la reparación del viejo puente costará a la ciudad más de lo que se "
        "creía, y que las obras durarán hasta el final del próximo año. ¿Y la escuela? Habrá que esperar: señaló "
        "que el niño más pequeño terminará antes allí."
    ),
    "thai": (
        "เมื่อวานตอนเย็นเรือลำหนึ่งมาถึงท่าเรือหลังจากเดินทางไกลในทะเลที่มีคลื่นแรง ตลาดเปิดทุกเช้าเวลาเจ็ดโมง "
        "พ่อค้าขายผัก ปลาสด และขนมปังที่ยังร้อนอยู่ วิศวกรกล่าวว่าการซ่อมสะพานเก่าจะใช้เงินมากกว่าที่คิดไว้ "
        "และงานจะดำเนินต่อไปจนถึงสิ้นปีหน้า"
    ),
    "turkish": (
        "Dün akşam, fırtınalı denizde uzun bir yolculuktan sonra limana bir gemi geldi. Çarşı her sabah saat "
        "yedide açılıyor; satıcılar sebze, taze balık ve sıcak ekmek satıyor. Mühendis, eski köprünün onarımının "
        "şehre önceden düşünülenden daha pahalıya mal olacağını ve işlerin gelecek yılın sonuna kadar süreceğini "
        "söyledi. Bu yüzden belediye okulun yenilenmesini ertelemeye karar verdi ve halktan anlayış göstermesini "
        "istedi."
    ),
    "ukrainian": (
        "Учора ввечері після довгої подорожі бурхливим морем до порту прийшов корабель. Ринок відчиняється "
        "щоранку о сьомій годині, і торговці продають там овочі, свіжу рибу та ще теплий хліб. Інженер сказав, "
        "що ремонт старого моста коштуватиме місту дорожче, ніж гадали спочатку, і що роботи триватимуть до "
        "кінця наступного року. Тому управа вирішила відкласти перебудову школи й просить мешканців про терпіння."
    ),
    "vietnamese": (
        "Chiều hôm qua, một con tàu đã cập bến cảng sau chuyến đi dài trên biển động. Chợ mở cửa mỗi sáng lúc "
        "bảy giờ, những người buôn bán bày rau, cá tươi và bánh mì còn nóng. Người kỹ sư nói rằng việc sửa chữa "
        "cây cầu cũ sẽ tốn của thành phố nhiều tiền hơn dự tính, và công việc sẽ kéo dài đến cuối năm sau. Vì "
        "vậy ủy ban đã quyết định hoãn việc xây lại trường học và mong người dân thông cảm."
    ),
}
